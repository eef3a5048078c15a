#include "lockstep/comm/collectives/reduce_scatter.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work reduce_scatter(const ProcessGroup& group, Destination output,
                    std::vector<std::span<const std::byte>> inputs, ReduceOp op, bool async_op,
                    std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::REDUCE_SCATTER, group)) return {};
  check_reduction(Verb::REDUCE_SCATTER, group, output.dtype, op);
  check_buffer(Verb::REDUCE_SCATTER, group, output.data, output.count, output.dtype);
  check_parts(Verb::REDUCE_SCATTER, group, inputs, output.dtype, "input");
  check_own_part(Verb::REDUCE_SCATTER, group, inputs, output.count, output.dtype);
  Request request;
  request.verb = Verb::REDUCE_SCATTER;
  request.dtype = output.dtype;
  request.op = op;
  request.count = output.count;
  request.output = output.data;
  request.inputs = std::move(inputs);
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

}  // namespace lockstep::comm
