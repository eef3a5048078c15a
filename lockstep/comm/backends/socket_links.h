// SocketLinks: links over connected stream sockets, one per peer, and epoll.
//
//   SocketLinks links(std::move(sockets));         // by rank; an invalid descriptor is no link
#pragma once

#include <vector>

#include "lockstep/comm/backends/link.h"
#include "lockstep/os/event_poll.h"
#include "lockstep/os/fd.h"

namespace lockstep::tcp {

class SocketLinks final : public Links {
 public:
  explicit SocketLinks(std::vector<Fd> sockets) : sockets_(std::move(sockets)) {}

  std::unique_ptr<Link> link_to(int peer) override;
  std::vector<Event> wait(Deadline deadline) override;
  void wake() override { poll_.wake(); }

 private:
  EventPoll poll_;
  std::vector<Fd> sockets_;  // without a link so far
};

}  // namespace lockstep::tcp
