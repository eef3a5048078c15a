// Deadline: the time by which a wait must have ended. Nested waits share one deadline by passing it on. Only
// time in which this process could run counts (running_clock.h).
//
//   const Deadline deadline = Deadline::in(30s);
//   while (!ready()) {
//     if (deadline.expired()) throw Timeout(...);
//     const Nap nap(deadline.nap());
//     sleep_for(deadline.nap());
//   }
#pragma once

#include <algorithm>
#include <chrono>

#include "lockstep/base/running_clock.h"
#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

class Deadline {
 public:
  using Clock = RunningClock;

  static Deadline in(std::chrono::nanoseconds span) {
    const auto now = Clock::now();
    return span >= Clock::time_point::max() - now ? never() : Deadline(now + span);
  }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  bool is_never() const { return at_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= at_; }

  // Never negative; Clock::duration::max() for never().
  std::chrono::nanoseconds remaining() const {
    if (is_never()) return std::chrono::nanoseconds::max();
    return std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(at_ - Clock::now()));
  }
  // How long to sleep before the deadline is checked again; nanoseconds::max() for never().
  std::chrono::nanoseconds nap() const {
    return is_never() ? std::chrono::nanoseconds::max()
                      : std::min<std::chrono::nanoseconds>(remaining(), LONGEST_NAP);
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// Waits on a condition variable until `done`. Returns false if the deadline passed before.
template <class Condition, class Lock, class Done>
bool wait_until(Condition& condition, Lock& lock, const Deadline& deadline, const Done& done) {
  while (!done()) {
    if (deadline.expired()) return false;
    const Nap nap(deadline.nap());
    if (deadline.is_never()) {
      condition.wait(lock);
    } else {
      condition.wait_for(lock, deadline.nap());
    }
  }
  return true;
}

}  // namespace lockstep
