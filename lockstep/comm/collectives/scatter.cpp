#include "lockstep/comm/collectives/scatter.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work scatter(const ProcessGroup& group, Destination output, std::vector<std::span<const std::byte>> inputs,
             const ScatterOptions& options, std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::SCATTER, group)) return {};
  check_buffer(Verb::SCATTER, group, output.data, output.count, output.dtype);
  Request request;
  request.verb = Verb::SCATTER;
  request.dtype = output.dtype;
  request.root = options.root.in(group, name_of(Verb::SCATTER), "root");
  request.count = output.count;
  request.output = output.data;
  request.inputs = std::move(inputs);
  request.keep_alive = std::move(keep_alive);
  check_root_parts(group, request, request.inputs, "input", "sends");
  return run(group, std::move(request), options.async_op);
}

}  // namespace lockstep::comm
