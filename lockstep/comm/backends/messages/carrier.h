// Carrier: what carries the bytes between ranks of a messages::Group: sockets (tcp/backend.h), MPI
// (mpi/backend.h) or Gloo (gloo/backend.h). Each is a constant of its name and of one function, which
// connects the ranks of a meeting.
//
//   ProcessGroup world = messages::make_group(GLOO_CARRIER, meeting, "world", {}, deadline);
//
// A new one needs Links (link.h), such a constant, and a row or two in registry.cpp.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/messages/link.h"
#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::messages {

struct Carrier {
  // Names of groups: over it alone, and over it and memory that is shared in each machine
  // (hierarchical_backend.h).
  std::string_view name;
  std::string_view hierarchical;
  // Collective over the meeting's ranks. Throws what its backend's header says.
  Connections (*connect)(Meeting& meeting, const GroupOptions& options, Deadline deadline);

  bool carries(std::string_view backend) const { return backend == name || backend == hierarchical; }
};

// The group of all ranks of the meeting, over messages alone. Collective; throws what carrier.connect does.
ProcessGroup make_group(const Carrier& carrier, Meeting& meeting, const std::string& group_name,
                        const GroupOptions& options, Deadline deadline);
// The same over connections that there are already.
ProcessGroup make_group(const Carrier& carrier, Connections connections, Meeting& meeting,
                        const std::string& group_name, const GroupOptions& options, Deadline deadline);

}  // namespace lockstep::messages
