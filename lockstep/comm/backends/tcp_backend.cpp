#include "lockstep/comm/backends/tcp_backend.h"

#include "lockstep/comm/backends/socket_links.h"
#include "lockstep/comm/backends/tcp_mesh.h"

namespace lockstep {

tcp::Connections connect_tcp(Meeting& meeting, const GroupOptions& options, Deadline deadline) {
  auto [sockets, peers] = tcp::connect_mesh(meeting, options.timeout, deadline);
  return {std::make_unique<tcp::SocketLinks>(std::move(sockets)), std::move(peers)};
}

}  // namespace lockstep
