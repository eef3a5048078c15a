#include "lockstep/comm/backends/mpi/links.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace lockstep::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int AT_ONCE = 50;  // number of rounds without a pause
constexpr std::chrono::milliseconds LIVELY{20};
constexpr std::chrono::microseconds SHORT_REST{50};
constexpr int PART = 20;  // the pause is one such part of the time since the last byte
constexpr std::chrono::milliseconds LONGEST_REST{50};

class MpiLink final : public messages::Link {
 public:
  MpiLink(MpiLinks& links, int peer) : links_(links), peer_(peer) {}

  StreamResult receive_some(std::span<std::byte> buffer) override {
    return result(links_.streams().receive(peer_, buffer));
  }
  StreamResult send_some(const std::array<std::span<const std::byte>, 2>& parts) override {
    const StreamResult sent = result(links_.streams().send(peer_, parts));
    if (sent.bytes > 0) links_.stir();
    return sent;
  }
  void want_write(bool wanted) override { links_.streams().want_write(peer_, wanted); }
  bool flushed() const override { return links_.streams().flushed(peer_); }
  void close() override { links_.streams().close(peer_); }

 private:
  static StreamResult result(Streams::Moved moved) {
    const StreamEnd end = moved.broken.empty() ? StreamEnd::NONE : StreamEnd::BROKEN;
    return {moved.bytes, end, std::move(moved.broken)};
  }

  MpiLinks& links_;
  const int peer_;
};

}  // namespace

std::unique_ptr<messages::Link> MpiLinks::link_to(int peer) {
  return peer == own_ ? nullptr : std::make_unique<MpiLink>(*this, peer);
}

std::vector<messages::Links::Event> MpiLinks::wait(Deadline deadline, bool) {
  for (int rounds = 0;; ++rounds) {
    const auto ready = streams_->progress();
    if (!ready.empty()) {
      const std::lock_guard lock(mutex_);
      moved_ = Clock::now();
      std::vector<Event> events;
      for (const auto& one : ready) events.push_back({one.member, one.readable, one.writable});
      return events;
    }
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(woken_, false)) return {};
      if (std::exchange(stirred_, false)) rounds = 0;
    }
    if (deadline.expired()) return {};
    rest(rounds, deadline);
  }
}

void MpiLinks::rest(int rounds, Deadline deadline) {
  if (rounds < AT_ONCE) return std::this_thread::yield();
  std::unique_lock lock(mutex_);
  const std::chrono::nanoseconds quiet = Clock::now() - moved_;
  const std::chrono::nanoseconds span =
      quiet < LIVELY ? SHORT_REST : std::min<std::chrono::nanoseconds>(quiet / PART, LONGEST_REST);
  const auto rest = std::min(span, deadline.remaining());
  const Nap nap(rest);
  changed_.wait_for(lock, rest, [&] { return woken_ || stirred_; });
}

void MpiLinks::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void MpiLinks::stir() {
  {
    const std::lock_guard lock(mutex_);
    moved_ = Clock::now();
    if (std::exchange(stirred_, true)) return;
  }
  changed_.notify_all();
}

}  // namespace lockstep::mpi
