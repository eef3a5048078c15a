// SocketLinks: links over connected stream sockets, one or several per peer, and epoll.
//
//   SocketLinks links(std::move(sockets));         // by rank; none is no link
//
// Over several sockets a link's bytes go in stripes of 64 KiB, in turn: the first stripe over the first socket, the next over the
// second, and so on. Both sides count, so that nothing is added to the bytes.
#pragma once

#include <vector>

#include "lockstep/comm/backends/link.h"
#include "lockstep/os/event_poll.h"
#include "lockstep/os/fd.h"

namespace lockstep::tcp {

class SocketLinks final : public Links {
 public:
  static constexpr std::size_t STRIPE = std::size_t{64} << 10U;

  explicit SocketLinks(std::vector<std::vector<Fd>> sockets) : sockets_(std::move(sockets)) {}

  std::unique_ptr<Link> link_to(int peer) override;
  std::vector<Event> wait(Deadline deadline) override;
  void wake() override { poll_.wake(); }

 private:
  EventPoll poll_;
  std::vector<std::vector<Fd>> sockets_;  // without a link so far
};

}  // namespace lockstep::tcp
