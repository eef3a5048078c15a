// gloo: ranks as processes of one or several machines, over connections of the Gloo library (Debian's
// libgloo). The library is loaded when the first group is made. libtorch's own Gloo stays beside it,
// unchanged.
//
//   LOCKSTEP_BACKEND=gloo lockstep run -n 4 ./train             // or init_process_group("gloo")
//
// What        The schedules, tags, groups, dtypes, operators, bits and errors are those of tcp. Gloo moves
//             bytes and does nothing else. It is for a network in which Gloo is known to work, and for
//             comparisons. tcp is faster.
// Where       As tcp: on one machine at its loopback address, between machines at the address by which this
//             machine reaches MASTER_ADDR, or at that of LOCKSTEP_SOCKET_IFNAME. Each rank listens for every
//             other rank at a port that the kernel chooses.
// Trust       Connections are NOT authenticated, unlike tcp's. During init_process_group, a stranger who
//             reaches a rank's ports may take the place of a rank. At best this fails the job. Bytes that are
//             not Gloo's end the process, because Gloo does so. Nothing is encrypted. Use it only where
//             everybody who can reach these ports is trusted.
// Threads     One thread of Gloo, one of Lockstep, and two for each other rank. Up to 4 MiB of memory for
//             each other rank, as far as data is sent.
// Beginning   Collective over the meeting's ranks. All ranks must have the same version of Gloo.
// Death       All ranks see the death of a process within the time of a packet, as with tcp. A stopped rank
//             is named when the timeout has passed. A machine that stops answering, or is behind a link that
//             is down, is noticed only by that timeout.
// End         Closing takes some 20 ms, because Gloo's thread wakes every 10 ms.
// Throws      InvalidArgument, on all ranks: there is no module (install libgloo-dev and build again), or
//             ranks have different versions. PeerLost and Timeout as the meeting throws them, and PeerLost
//             that names a rank that cannot be reached.
#pragma once

#include "lockstep/comm/backends/messages/carrier.h"

namespace lockstep {

messages::Connections connect_gloo(Meeting& meeting, const GroupOptions& options, Deadline deadline);
inline constexpr messages::Carrier GLOO_CARRIER{"gloo", "hierarchical+gloo", connect_gloo};

}  // namespace lockstep
