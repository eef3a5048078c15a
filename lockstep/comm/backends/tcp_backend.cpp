#include "lockstep/comm/backends/tcp_backend.h"

#include "lockstep/base/environment.h"
#include "lockstep/comm/backends/socket_links.h"
#include "lockstep/comm/backends/tcp_mesh.h"

namespace lockstep {

tcp::Connections connect_tcp(Meeting& meeting, const GroupOptions& options, Deadline deadline) {
  const long connections =
      meeting.rank() == 0 ? env_number("LOCKSTEP_TCP_CONNECTIONS", 1, tcp::MOST_CONNECTIONS).value_or(1) : 1;
  auto [sockets, peers] = tcp::connect_mesh(
      meeting, {.silence = options.timeout, .connections = static_cast<int>(connections)}, deadline);
  return {std::make_unique<tcp::SocketLinks>(std::move(sockets)), std::move(peers)};
}

}  // namespace lockstep
