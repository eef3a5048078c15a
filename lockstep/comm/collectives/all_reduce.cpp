#include "lockstep/comm/collectives/all_reduce.h"

#include "lockstep/comm/collectives/check.h"
#include "lockstep/comm/reduce_kernels.h"

namespace lockstep::comm {

Work all_reduce(const ProcessGroup& group, void* data, std::size_t count, DType dtype, ReduceOp op,
                bool async_op, std::shared_ptr<void> keep_alive) {
  if (!can_reduce(dtype, op)) {
    refuse(Verb::ALL_REDUCE, group, "there is no ", name_of(op), " of ", name_of(dtype),
           op == ReduceOp::AVG ? "; reduce with sum and divide" : "");
  }
  check_buffer(Verb::ALL_REDUCE, group, data, count, dtype);
  Request request;
  request.verb = Verb::ALL_REDUCE;
  request.dtype = dtype;
  request.op = op;
  request.count = count;
  request.input = data;
  request.output = data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

}  // namespace lockstep::comm
