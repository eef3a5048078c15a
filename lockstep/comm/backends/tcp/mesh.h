// connect_mesh: authenticated TCP connections between every two ranks of a meeting.
//
//   auto [sockets, peers] = connect_mesh(meeting, {.silence = 30s}, deadline);  // by rank; none to this rank
//                                                                               // itself
//
// Every rank listens at a free port of the address that the meeting gives for it. The ranks exchange these
// addresses. Each rank connects to all lower ranks, and the listeners are then closed. Both sides of a
// connection prove that they know the job's secret (store/handshake.h). If the meeting has no secret, because
// every participant is trusted anyhow, rank 0 makes one up. A thread of each rank admits the higher ranks,
// and welcomes each connection with a byte. Any number of strangers may connect meanwhile: they are dropped
// and delay no rank (store/reception.h). A rank whose connection is cut off before the welcome connects
// again.
//
// Collective  over the meeting's ranks.
// Fails       PeerLost or Timeout naming the rank that ended or did not come; StoreError naming the rank with
//             another secret.
#pragma once

#include <chrono>
#include <vector>

#include "lockstep/comm/backends/messages/fabric.h"
#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/os/fd.h"

namespace lockstep::tcp {

inline constexpr int MOST_CONNECTIONS = 16;

struct MeshOptions {
  std::chrono::milliseconds silence{0};  // time after which a machine that does not answer counts as gone
  int connections = 1;                   // between two ranks; the value of the meeting's rank 0 counts
};

struct MeshOfSockets {
  // Connected, authenticated, non-blocking; in the same order on both sides.
  std::vector<std::vector<Fd>> sockets;
  std::vector<messages::PeerProcess> peers;
};

MeshOfSockets connect_mesh(Meeting& meeting, const MeshOptions& options, Deadline deadline);

}  // namespace lockstep::tcp
