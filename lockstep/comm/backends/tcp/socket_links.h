// SocketLinks: links over connected stream sockets, one or several per peer, and epoll.
//
//   SocketLinks links(std::move(sockets));         // by rank; no sockets: no link
//
// Over several sockets a link's bytes go in stripes of 64 KiB, in turn: the first stripe over the first
// socket, the next over the second, and so on. Both sides count, so that nothing is added to the bytes.
#pragma once

#include <chrono>
#include <vector>

#include "lockstep/comm/backends/messages/link.h"
#include "lockstep/os/event_poll.h"
#include "lockstep/os/fd.h"

namespace lockstep::tcp {

class SocketLinks final : public messages::Links {
 public:
  static constexpr std::size_t STRIPE = std::size_t{64} << 10U;

  // `spin`: how long an eager wait spins before it sleeps.
  explicit SocketLinks(std::vector<std::vector<Fd>> sockets,
                       std::chrono::nanoseconds spin = std::chrono::nanoseconds(0))
      : sockets_(std::move(sockets)), spin_(spin) {}

  std::unique_ptr<messages::Link> link_to(int peer) override;
  std::vector<Event> wait(Deadline deadline, bool eager = false) override;
  void wake() override { poll_.wake(); }

 private:
  EventPoll poll_;
  std::vector<std::vector<Fd>> sockets_;  // of links that have not been made yet
  const std::chrono::nanoseconds spin_;
};

}  // namespace lockstep::tcp
