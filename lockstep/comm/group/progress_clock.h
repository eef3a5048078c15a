// ProgressClock: measures how long an operation has made no progress, and decides what the waiting rank does.
// It is the same for all backends. Pure: the caller passes the time.
//
//   ProgressClock clock(timeout, warn_after);
//   while (!operation.is_done()) {
//     const auto now = RunningClock::now();
//     switch (clock.look(now, operation.progress())) {
//       case ProgressClock::Verdict::TIMEOUT: fail("no progress for ", timeout); break;
//       case ProgressClock::Verdict::WARN: log("waiting for ", clock.waited(now)); break;
//       case ProgressClock::Verdict::GO_ON: break;
//     }
//   }
//
// The first look() starts the clock. Every change of `progress` starts it anew.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "lockstep/base/running_clock.h"

namespace lockstep {

class ProgressClock {
 public:
  enum class Verdict { GO_ON, WARN, TIMEOUT };
  using Time = RunningClock::time_point;

  ProgressClock(std::chrono::nanoseconds timeout, std::chrono::nanoseconds warn_after)
      : timeout_(std::min(timeout, LONGEST)), warn_after_(std::min(warn_after, LONGEST)) {}

  // WARN comes once in every `warn_after` without progress. TIMEOUT comes at every look from `timeout` on.
  Verdict look(Time now, std::uint64_t progress) {
    if (!has_begun_ || progress_ != progress) {
      has_begun_ = true;
      progress_ = progress;
      changed_ = warned_ = now;
      return Verdict::GO_ON;
    }
    if (now - changed_ >= timeout_) return Verdict::TIMEOUT;
    if (now - warned_ < warn_after_) return Verdict::GO_ON;
    warned_ = now;
    return Verdict::WARN;
  }

  std::chrono::nanoseconds timeout() const { return timeout_; }
  std::chrono::nanoseconds waited(Time now) const { return now - changed_; }
  // look() returns GO_ON until then.
  Time next() const { return std::min(changed_ + timeout_, warned_ + warn_after_); }

 private:
  static constexpr std::chrono::nanoseconds LONGEST =
      std::chrono::hours(24 * 365 * 10);  // so that sums do not overflow

  const std::chrono::nanoseconds timeout_;
  const std::chrono::nanoseconds warn_after_;
  bool has_begun_ = false;
  std::uint64_t progress_ = 0;  // at the last look
  Time changed_;                // when the progress last changed
  Time warned_;
};

}  // namespace lockstep
