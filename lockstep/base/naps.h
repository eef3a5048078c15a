// Naps: the naps of a loop that has short looks between them, for instance at a library that must be polled.
//
//   for (Naps naps; !poll(); naps.sleep(1ms))
//     if (naps.now() - begun >= timeout) throw Timeout(...);
//
// The process may be stopped within a look as well, and on a busy machine a look that gives the core away
// lasts as long as a nap. A look that took longer than RunningTime::SLACK is therefore reported to the clock
// (running_clock.h) as a nap would be. Nothing that computes for so long belongs between two naps.
#pragma once

#include <chrono>
#include <utility>

#include "lockstep/base/running_clock.h"

namespace lockstep {

class Naps {
 public:
  // Reports the look that ends here, then reads the clock.
  RunningClock::time_point now() {
    const auto until = std::chrono::steady_clock::now();
    running_time.slept(std::exchange(last_, until), std::chrono::nanoseconds(0), until);
    return RunningClock::now();
  }
  void sleep(std::chrono::nanoseconds span) {
    nap(span);
    last_ = std::chrono::steady_clock::now();
  }

 private:
  std::chrono::steady_clock::time_point last_ =
      std::chrono::steady_clock::now();  // until when all is reported
};

}  // namespace lockstep
