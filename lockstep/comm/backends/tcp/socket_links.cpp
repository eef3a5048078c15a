#include "lockstep/comm/backends/tcp/socket_links.h"

#include <algorithm>
#include <limits>

#include "lockstep/os/tcp_socket.h"

namespace lockstep::tcp {
namespace {

class SocketLink final : public messages::Link {
 public:
  SocketLink(std::vector<Fd> sockets, int peer, EventPoll& poll)
      : sockets_(std::move(sockets)),
        watched_(sockets_.size()),
        token_(static_cast<std::uint64_t>(peer)),
        poll_(poll) {
    watch();
  }

  StreamResult receive_some(std::span<std::byte> buffer) override {
    const auto here = buffer.first(std::min(buffer.size(), left_at(received_)));
    StreamResult result = lockstep::receive_some(sockets_[socket_at(received_)].get(), here);
    advance(received_, result.bytes);
    return result;
  }
  StreamResult send_some(const std::array<std::span<const std::byte>, 2>& parts) override {
    const std::size_t left = left_at(sent_);
    const auto first = parts[0].first(std::min(parts[0].size(), left));
    const auto second = parts[1].first(std::min(parts[1].size(), left - first.size()));
    StreamResult result = lockstep::send_some(sockets_[socket_at(sent_)].get(), {first, second});
    advance(sent_, result.bytes);
    return result;
  }
  void want_write(bool wanted) override {
    wants_write_ = wanted;
    watch();
  }
  bool flushed() const override {
    return std::all_of(sockets_.begin(), sockets_.end(),
                       [](const Fd& socket) { return unacknowledged(socket.get()) == 0; });
  }
  std::chrono::milliseconds silent_for() const override {
    std::chrono::milliseconds longest{0};
    for (const Fd& socket : sockets_) longest = std::max(longest, tcp_unanswered_for(socket.get()));
    return longest;
  }
  void close() override {
    for (std::size_t i = 0; i < sockets_.size(); ++i) change(i, {});
    for (Fd& socket : sockets_) socket.reset();
  }

 private:
  std::size_t socket_at(std::uint64_t position) const {
    return position / SocketLinks::STRIPE % sockets_.size();
  }
  // Bytes until the next socket's turn.
  std::size_t left_at(std::uint64_t position) const {
    if (sockets_.size() == 1) return std::numeric_limits<std::size_t>::max();
    return SocketLinks::STRIPE - position % SocketLinks::STRIPE;
  }
  void advance(std::uint64_t& position, std::size_t bytes) {
    const std::size_t before = socket_at(position);
    position += bytes;
    if (socket_at(position) != before) watch();
  }

  // Watches only the sockets whose turn it is, because bytes that arrive on another one cannot be read yet.
  void watch() {
    for (std::size_t i = 0; i < sockets_.size(); ++i)
      change(i, {.read = i == socket_at(received_), .write = wants_write_ && i == socket_at(sent_)});
  }
  void change(std::size_t i, EventPoll::Interest interest) {
    const EventPoll::Interest before = std::exchange(watched_[i], interest);
    const int fd = sockets_[i].get();
    if (before == interest) return;
    if (interest == EventPoll::Interest{}) return poll_.remove(fd);
    if (before == EventPoll::Interest{}) return poll_.add(fd, token_, interest);
    poll_.change(fd, token_, interest);
  }

  std::vector<Fd> sockets_;
  std::vector<EventPoll::Interest> watched_;
  const std::uint64_t token_;
  EventPoll& poll_;
  std::uint64_t received_ = 0;  // bytes
  std::uint64_t sent_ = 0;
  bool wants_write_ = false;
};

}  // namespace

std::unique_ptr<messages::Link> SocketLinks::link_to(int peer) {
  auto& sockets = sockets_.at(static_cast<std::size_t>(peer));
  if (sockets.empty()) return nullptr;
  return std::make_unique<SocketLink>(std::exchange(sockets, {}), peer, poll_);
}

std::vector<messages::Links::Event> SocketLinks::wait(Deadline deadline, bool eager) {
  std::vector<Event> ready;
  for (const EventPoll::Event& event : poll_.wait(deadline, eager ? spin_ : std::chrono::nanoseconds(0)))
    ready.push_back({static_cast<int>(event.token), event.readable, event.writable});
  return ready;
}

}  // namespace lockstep::tcp
