#include "lockstep/comm/backends/engine.h"

#include "lockstep/comm/backends/tcp_group.h"

namespace lockstep::tcp {

ProcessGroup make_group(const Engine& engine, Meeting& meeting, const std::string& group_name,
                        const GroupOptions& options, Deadline deadline) {
  return make_group(engine, engine.connect(meeting, options, deadline), meeting, group_name, options,
                    deadline);
}

ProcessGroup make_group(const Engine& engine, Connections connections, Meeting& meeting,
                        const std::string& group_name, const GroupOptions& options, Deadline deadline) {
  const auto trace = TraceMemory::create(meeting.rank(), meeting.size());
  trace->share(meeting, deadline);
  return Group::make_world(
      std::move(connections),
      {.rank = meeting.rank(), .name = group_name, .engine = &engine, .options = options, .trace = trace});
}

}  // namespace lockstep::tcp
