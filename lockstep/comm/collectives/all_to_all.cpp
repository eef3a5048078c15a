#include "lockstep/comm/collectives/all_to_all.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work all_to_all(const ProcessGroup& group, DType dtype, AllToAllBuffers buffers, bool async_op,
                std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::ALL_TO_ALL, group)) return {};
  check_parts(Verb::ALL_TO_ALL, group, buffers.inputs, dtype, "input");
  check_parts(Verb::ALL_TO_ALL, group, buffers.outputs, dtype, "output");
  const auto own = static_cast<std::size_t>(group.rank());
  check_own_part(Verb::ALL_TO_ALL, group, buffers.outputs, buffers.inputs[own].size() / size_of(dtype),
                 dtype);
  Request request;
  request.verb = Verb::ALL_TO_ALL;
  request.dtype = dtype;
  for (const auto& input : buffers.inputs) request.count += input.size() / size_of(dtype);
  request.inputs = std::move(buffers.inputs);
  request.outputs = std::move(buffers.outputs);
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

}  // namespace lockstep::comm
