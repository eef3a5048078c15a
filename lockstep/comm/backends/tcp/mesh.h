// connect_mesh: authenticated TCP connections between every two ranks of a meeting.
//
//   auto [sockets, peers] = connect_mesh(meeting, {.silence = 30s}, deadline);  // by rank; none to this rank
//                                                                               // itself
//
// Everybody listens at a free port of the address at which the meeting says it can be reached; addresses are
// exchanged; each rank connects to all lower ones, and the listeners are closed. Both sides of a connection
// prove that they know the job's secret (store/handshake.h); without one, because whoever takes part in the
// meeting is trusted anyhow, rank 0 makes one up. A thread of each rank lets the others in, and welcomes each
// with a byte; strangers that connect meanwhile, however many, are dropped and keep nobody waiting
// (store/reception.h). A rank whose connection is cut off before it is welcome connects again.
//
// Collective  over the meeting's ranks.
// Fails       PeerLost or Timeout naming who ended or did not come; StoreError naming who knows another
//             secret.
#pragma once

#include <chrono>
#include <vector>

#include "lockstep/comm/backends/messages/fabric.h"
#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/os/fd.h"

namespace lockstep::tcp {

inline constexpr int MOST_CONNECTIONS = 16;

struct MeshOptions {
  std::chrono::milliseconds silence{0};  // after which a machine that does not answer counts as gone
  int connections = 1;                   // between two ranks; that of the meeting's rank 0 counts
};

struct MeshOfSockets {
  // Connected, authenticated, non-blocking; in the same order on both sides.
  std::vector<std::vector<Fd>> sockets;
  std::vector<messages::PeerProcess> peers;
};

MeshOfSockets connect_mesh(Meeting& meeting, const MeshOptions& options, Deadline deadline);

}  // namespace lockstep::tcp
