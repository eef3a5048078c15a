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

  // A span in any unit. One that the clock cannot count, such as milliseconds::max(), never ends.
  template <class Rep, class Period> static Deadline in(std::chrono::duration<Rep, Period> span) {
    const auto now = Clock::now();
    const auto rest = std::chrono::nanoseconds(Clock::time_point::max() - now);
    if (span >= std::chrono::duration_cast<std::chrono::duration<Rep, Period>>(rest)) return never();
    return Deadline(now + std::chrono::duration_cast<std::chrono::nanoseconds>(span));
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

// The longest timeout of a group: fifty years. A program may ask for milliseconds::max(), and sums of
// timeouts in nanoseconds still have to fit into 64 bits.
inline constexpr std::chrono::milliseconds LONGEST_TIMEOUT = std::chrono::hours(24 * 365 * 50);

template <class Rep, class Period>
constexpr std::chrono::milliseconds bounded_timeout(std::chrono::duration<Rep, Period> span) {
  using Unit = std::chrono::duration<Rep, Period>;
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::min(span, std::chrono::duration_cast<Unit>(LONGEST_TIMEOUT)));
}

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
