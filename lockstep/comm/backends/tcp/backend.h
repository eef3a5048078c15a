// tcp: ranks as processes of one or several machines, over TCP. Every two ranks have one connection, or
// $LOCKSTEP_TCP_CONNECTIONS of them (rank 0's value counts).
//
//   Hub hub = Hub::inherited(...);                          // or any other Meeting; job/ does this
//   ProcessGroup world = messages::make_group(TCP_CARRIER, hub, "world", {}, deadline);
//
// Messages    of at most 64 KiB leave at once. send() returns when its buffer may be used again. For such a
//             message it does not wait for the receiver, unless more than 1 MiB of messages to that rank is
//             unreceived. Larger messages wait until the receiver asks for them, and go straight into its
//             buffer. Messages that still wait are lost when their sender leaves the group or ends.
// Progress    A waiting rank serves all its connections. While no thread waits, one thread per process serves
//             them: operations complete without their owner calling anything.
// Death       All ranks see the death of a process within the time of a packet. A machine that stops
//             answering, or is behind a link that is down, counts as lost after 15 s, $LOCKSTEP_HOST_TIMEOUT
//             or the group's timeout, whichever is least. The ranks throw PeerLost that names peer and
//             direction. A stopped process is not lost, because its machine answers for it.
// Security    Connections are authenticated with the job's secret and not encrypted.
// Memory      allocate_shared() gives plain memory, because no memory can be shared here.
#pragma once

#include "lockstep/comm/backends/messages/carrier.h"

namespace lockstep {

// Throws as tcp::connect_mesh() does (tcp/mesh.h).
messages::Connections connect_tcp(Meeting& meeting, const GroupOptions& options, Deadline deadline);
inline constexpr messages::Carrier TCP_CARRIER{"tcp", "hierarchical", connect_tcp};

}  // namespace lockstep
