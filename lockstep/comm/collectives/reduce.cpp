#include "lockstep/comm/collectives/reduce.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work reduce(const ProcessGroup& group, void* data, std::size_t count, DType dtype,
            const ReduceOptions& options, std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::REDUCE, group)) return {};
  check_reduction(Verb::REDUCE, group, dtype, options.op);
  check_buffer(Verb::REDUCE, group, data, count, dtype);
  Request request;
  request.verb = Verb::REDUCE;
  request.dtype = dtype;
  request.op = options.op;
  request.root = options.root.in(group, name_of(Verb::REDUCE), "root");
  request.count = count;
  request.input = data;
  request.output = data;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), options.async_op);
}

}  // namespace lockstep::comm
