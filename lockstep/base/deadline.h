// A point in time by which something must have happened. Nested waits share one deadline by passing it on.
//
//   const Deadline deadline = Deadline::in(30s);
//   while (!ready()) if (deadline.expired()) throw Timeout(...);
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

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

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace lockstep
