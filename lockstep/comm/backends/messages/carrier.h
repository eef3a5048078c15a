// Carrier: the way in which bytes travel between the ranks of a messages::Group. There are sockets
// (tcp/backend.h), MPI (mpi/backend.h) and Gloo (gloo/backend.h). Each carrier is a constant that holds a
// name and one function, which connects the ranks of a meeting.
//
//   ProcessGroup world = messages::make_group(GLOO_CARRIER, meeting, "world", {}, deadline);
//
// A new carrier needs Links (link.h), such a constant, and a row or two in registry.cpp.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/messages/link.h"
#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::messages {

struct Carrier {
  // Names of two backends: over this carrier alone, and over the carrier together with shared memory in each
  // machine (hierarchical_backend.h).
  std::string_view name;
  std::string_view hierarchical;
  // Collective over the meeting's ranks. Throws the errors that the carrier's backend.h lists.
  Connections (*connect)(Meeting& meeting, const GroupOptions& options, Deadline deadline);

  bool carries(std::string_view backend) const { return backend == name || backend == hierarchical; }
};

// Makes the group of all ranks of the meeting, over messages alone. Collective. Throws what carrier.connect
// throws.
ProcessGroup make_group(const Carrier& carrier, Meeting& meeting, const std::string& group_name,
                        const GroupOptions& options, Deadline deadline);
// The same over connections that exist already.
ProcessGroup make_group(const Carrier& carrier, Connections connections, Meeting& meeting,
                        const std::string& group_name, const GroupOptions& options, Deadline deadline);

}  // namespace lockstep::messages
