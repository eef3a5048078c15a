#include "lockstep/comm/collectives/gather.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work gather(const ProcessGroup& group, Contribution input, std::vector<std::span<std::byte>> outputs,
            const GatherOptions& options, std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::GATHER, group)) return {};
  check_buffer(Verb::GATHER, group, input.data, input.count, input.dtype);
  Request request;
  request.verb = Verb::GATHER;
  request.dtype = input.dtype;
  request.root = options.root.in(group, name_of(Verb::GATHER), "root");
  request.count = input.count;
  request.input = input.data;
  request.outputs = std::move(outputs);
  request.keep_alive = std::move(keep_alive);
  check_root_parts(group, request, request.outputs, "output", "receives");
  return run(group, std::move(request), options.async_op);
}

}  // namespace lockstep::comm
