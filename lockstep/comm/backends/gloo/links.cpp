#include "lockstep/comm/backends/gloo/links.h"

namespace lockstep::gloo {
namespace {

class GlooLink final : public messages::Link {
 public:
  GlooLink(Streams& streams, int peer) : streams_(streams), peer_(peer) {}

  StreamResult receive_some(std::span<std::byte> buffer) override {
    return result(streams_.receive(peer_, buffer));
  }
  StreamResult send_some(const std::array<std::span<const std::byte>, 2>& parts) override {
    return result(streams_.send(peer_, parts));
  }
  void want_write(bool wanted) override { streams_.want_write(peer_, wanted); }
  bool flushed() const override { return streams_.flushed(peer_); }
  void close() override { streams_.close(peer_); }

 private:
  static StreamResult result(Streams::Moved moved) {
    if (moved.broken == nullptr) return {moved.bytes, StreamEnd::NONE, ""};
    return {moved.bytes, moved.by_peer ? StreamEnd::PEER : StreamEnd::BROKEN, moved.broken};
  }

  Streams& streams_;
  const int peer_;
};

}  // namespace

std::unique_ptr<messages::Link> GlooLinks::link_to(int peer) {
  return peer == own_ ? nullptr : std::make_unique<GlooLink>(*streams_, peer);
}

std::vector<messages::Links::Event> GlooLinks::wait(Deadline deadline, bool) {
  std::vector<Streams::Ready> ready(static_cast<std::size_t>(size_));
  std::size_t count = 0;
  {
    const Nap nap(deadline.nap());
    const auto until = deadline.is_never() ? TimePoint::max() : TimePoint::clock::now() + deadline.nap();
    count = streams_->wait(ready, until);
  }
  std::vector<Event> events;
  for (const auto& one : std::span(ready).first(count))
    events.push_back({one.member, one.readable, one.writable});
  return events;
}

}  // namespace lockstep::gloo
