// Ranks as processes of one or several hosts, over one TCP connection for every two of them, or
// $LOCKSTEP_TCP_CONNECTIONS (rank 0's).
//
//   Hub hub = Hub::inherited(...);                          // or any other Meeting; job/ does this
//   ProcessGroup world = messages::make_group(TCP_CARRIER, hub, "world", {}, deadline);
//
// Messages    of at most 64 KiB leave at once; send() returns when its buffer may be used again, which such a
//             message does not keep waiting for the receiver unless more than 1 MiB of them is unreceived.
//             Larger ones wait until they are asked for and go straight into the receiver's buffer. A rank
//             that leaves the group or ends takes with it what it has been keeping back.
// Progress    A waiting rank serves all its connections. While no thread waits, one thread per process serves
//             them: operations complete without their owner calling anything.
// Death       The death of a process is seen by all ranks within the time of a packet. A host that stops
//             answering, or is behind a link that is down, counts as lost after 15 s, $LOCKSTEP_HOST_TIMEOUT
//             or the group's timeout, whichever is least. The ranks throw PeerLost that names peer and
//             direction. A stopped process is not lost: its host answers for it.
// Security    Connections are authenticated with the job's secret and not encrypted.
// Shared      memory has no meaning here: allocate_shared() gives plain memory.
#pragma once

#include "lockstep/comm/backends/messages/carrier.h"

namespace lockstep {

// Throws as tcp::connect_mesh() does (tcp/mesh.h).
messages::Connections connect_tcp(Meeting& meeting, const GroupOptions& options, Deadline deadline);
inline constexpr messages::Carrier TCP_CARRIER{"tcp", "hierarchical", connect_tcp};

}  // namespace lockstep
