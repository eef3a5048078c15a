// connect_mesh: one authenticated TCP connection between every two ranks of a meeting.
//
//   auto [sockets, peers] = connect_mesh(meeting, silence, deadline);         // by rank; this rank's own socket is invalid
//
// Everybody listens at a free port of the address at which the meeting says it can be reached; addresses are exchanged; each
// rank connects to all lower ones, and the listeners are closed. Both sides of a connection prove that they know the job's
// secret (store/handshake.h); without one, because whoever takes part in the meeting is trusted anyhow, rank 0 makes one up.
// Strangers that connect meanwhile are dropped and keep nobody waiting.
//
// Collective  over the meeting's ranks.
// Fails       PeerLost or Timeout naming who ended or did not come; StoreError naming who knows another secret.
#pragma once

#include <chrono>
#include <vector>

#include "lockstep/comm/backends/tcp_fabric.h"
#include "lockstep/comm/meeting.h"
#include "lockstep/os/fd.h"

namespace lockstep::tcp {

struct MeshOfSockets {
  std::vector<Fd> sockets;  // connected, authenticated, non-blocking
  std::vector<Peer> peers;
};

// `silence`: after which a machine that does not answer counts as gone.
MeshOfSockets connect_mesh(Meeting& meeting, std::chrono::milliseconds silence, Deadline deadline);

}  // namespace lockstep::tcp
