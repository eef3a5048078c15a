#include "lockstep/launch/hub_sockets.h"

#include <utility>

#include "lockstep/os/pipe.h"

namespace lockstep {

std::vector<std::vector<Fd>> make_hub_sockets(int ranks) {
  std::vector<std::vector<Fd>> ends(static_cast<std::size_t>(ranks));
  for (int rank = 1; rank < ranks; ++rank) {
    SocketPair pair = make_packet_socket_pair();
    ends[0].push_back(std::move(pair.first));
    ends[static_cast<std::size_t>(rank)].push_back(std::move(pair.second));
  }
  return ends;
}

}  // namespace lockstep
