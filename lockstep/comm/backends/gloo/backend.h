// Ranks as processes of one or several machines, over connections of the Gloo library (Debian's libgloo),
// which is loaded when the first group is made: beside libtorch, whose own Gloo stays as it is.
//
//   LOCKSTEP_BACKEND=gloo lockstep run -n 4 ./train             // or init_process_group("gloo")
//
// What        The schedules, tags, groups, dtypes, operators, bits and errors are those of tcp: Gloo moves
//             bytes and nothing else. For a network in which Gloo is known to work, and for comparing; tcp is
//             faster.
// Where       As tcp: on one machine at its loopback address, between machines at the one by which this
//             machine reaches MASTER_ADDR, or at that of LOCKSTEP_SOCKET_IFNAME. A port of the kernel's
//             choice for every two ranks.
// Trust       Connections are NOT authenticated, unlike tcp's: during init_process_group, whoever reaches a
//             rank's ports may take a rank's place there, which fails the job at best; bytes that are not
//             Gloo's end the process, because Gloo does so. Nothing is encrypted. Use it where everybody who
//             can reach these ports is trusted.
// Threads     One of Gloo, one of ours, and two for each other rank. 4 MiB of memory for each other rank, if
//             that much is sent.
// Beginning   Collective over the meeting's ranks. All ranks must have the same version of Gloo.
// Death       of a process is seen by all within the time of a packet, as with tcp. A rank that stops is
//             named when the timeout has passed. Nobody watches a machine that stops answering, or a link
//             that is down, but that timeout.
// End         Closing takes some 20 ms: Gloo's thread looks up every 10 ms.
// Throws      InvalidArgument, on all ranks: no module (install libgloo-dev and build again), ranks with
//             different versions. PeerLost and Timeout as the meeting does, and PeerLost naming who cannot be
//             reached.
#pragma once

#include "lockstep/comm/backends/messages/carrier.h"

namespace lockstep {

messages::Connections connect_gloo(Meeting& meeting, const GroupOptions& options, Deadline deadline);
inline constexpr messages::Carrier GLOO_CARRIER{"gloo", "hierarchical+gloo", connect_gloo};

}  // namespace lockstep
