#include "lockstep/comm/collectives/all_reduce.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work all_reduce(const ProcessGroup& group, void* data, std::size_t count, DType dtype, ReduceOp op,
                bool async_op, std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::ALL_REDUCE, group)) return {};
  check_reduction(Verb::ALL_REDUCE, group, dtype, op);
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
