#include "lockstep/comm/backends/socket_links.h"

namespace lockstep::tcp {
namespace {

class SocketLink final : public Link {
 public:
  SocketLink(Fd socket, int peer, EventPoll& poll)
      : socket_(std::move(socket)), token_(static_cast<std::uint64_t>(peer)), poll_(poll) {
    poll_.add(socket_.get(), token_);
  }

  StreamResult receive_some(std::span<std::byte> buffer) override {
    return lockstep::receive_some(socket_.get(), buffer);
  }
  StreamResult send_some(const std::array<std::span<const std::byte>, 2>& parts) override {
    return lockstep::send_some(socket_.get(), parts);
  }
  void want_write(bool wanted) override { poll_.want_write(socket_.get(), token_, wanted); }
  bool flushed() const override { return unacknowledged(socket_.get()) == 0; }
  void close() override {
    poll_.remove(socket_.get());
    socket_.reset();
  }

 private:
  Fd socket_;
  const std::uint64_t token_;
  EventPoll& poll_;
};

}  // namespace

std::unique_ptr<Link> SocketLinks::link_to(int peer) {
  Fd& socket = sockets_.at(static_cast<std::size_t>(peer));
  if (!socket.valid()) return nullptr;
  return std::make_unique<SocketLink>(std::move(socket), peer, poll_);
}

std::vector<Links::Event> SocketLinks::wait(Deadline deadline) {
  std::vector<Event> ready;
  for (const EventPoll::Event& event : poll_.wait(deadline))
    ready.push_back({static_cast<int>(event.token), event.readable, event.writable});
  return ready;
}

}  // namespace lockstep::tcp
