#include "lockstep/comm/backends/messages/carrier.h"

#include "lockstep/comm/backends/messages/group.h"

namespace lockstep::messages {

ProcessGroup make_group(const Carrier& carrier, Meeting& meeting, const std::string& group_name,
                        const GroupOptions& options, Deadline deadline) {
  return make_group(carrier, carrier.connect(meeting, options, deadline), meeting, group_name, options,
                    deadline);
}

ProcessGroup make_group(const Carrier& carrier, Connections connections, Meeting& meeting,
                        const std::string& group_name, const GroupOptions& options, Deadline deadline) {
  const auto trace = TraceMemory::create(meeting.rank(), meeting.size());
  trace->share(meeting, deadline);
  return Group::make_world(
      std::move(connections),
      {.rank = meeting.rank(), .name = group_name, .carrier = &carrier, .options = options, .trace = trace});
}

}  // namespace lockstep::messages
