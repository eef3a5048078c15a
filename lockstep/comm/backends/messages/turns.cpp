#include "lockstep/comm/backends/messages/turns.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/running_clock.h"

namespace lockstep::messages {
namespace {

// How long the thread waits before it serves the connections while nothing of this rank is pending. It then
// hears of ranks that fail or leave.
constexpr std::chrono::milliseconds REST{1};
constexpr std::chrono::milliseconds LONG_REST{20};  // the same while a rank waits

}  // namespace

Turns::Waiting::~Waiting() {
  --turns_.waiting_;
  // it may be another rank's turn
  if (turns_.waiting_ > 0 && turns_.is_nobodys()) turns_.changed_.notify_one();
}

bool Turns::begin_turn() {
  if (server_ != Server::NOBODY) return false;
  server_ = Server::WAITER;
  return true;
}

void Turns::end_turn() {
  server_ = Server::NOBODY;
  was_served_ = true;
}

void Turns::sleep(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds span) {
  const auto shortened = std::min<std::chrono::nanoseconds>(span, LONGEST_NAP);
  const Nap nap(shortened);
  changed_.wait_for(lock, shortened);
}

bool Turns::tell_waiters() {
  if (!std::exchange(has_news_, false)) return false;
  changed_.notify_all();
  return server_ == Server::WAITER;
}

void Turns::serve_pending() {
  if (pending_ == 0 || waiting_ > 0 || has_thread_ended_ || server_ != Server::NOBODY) return;
  server_ = Server::THREAD;
  called_.notify_one();
}

void Turns::end_turn_of_thread() {
  if (waiting_ == 0) return;
  server_ = Server::NOBODY;
  changed_.notify_one();
}

// Even to look at the state costs a change between threads, so the thread sleeps longer while a rank serves.
void Turns::rest(std::unique_lock<std::mutex>& lock) {
  was_served_ = false;
  called_.wait_for(lock, server_ == Server::WAITER ? LONG_REST : REST,
                   [&] { return has_stopped_ || server_ == Server::THREAD; });
  if (server_ == Server::NOBODY && waiting_ == 0 && !was_served_) server_ = Server::THREAD;
}

void Turns::stop() {
  has_stopped_ = true;
  called_.notify_all();
}

void Turns::end_thread() {
  has_thread_ended_ = true;
  if (server_ == Server::THREAD) server_ = Server::NOBODY;
  changed_.notify_all();
}

}  // namespace lockstep::messages
