// CycleClock: the cheapest clock of this machine that never goes back and that all processes read alike. It
// is the processor's time stamp counter if the kernel trusts that, else std::chrono::steady_clock. Recording
// stores raw counts; the reader of a trace converts them to nanoseconds.
//
//   const CycleClock clock = CycleClock::of_this_machine();
//   const CycleClock::Pair first = clock.pair();
//   const std::uint64_t count = clock.now();                       // no system call
//   ...
//   // in nanoseconds of steady_clock
//   const std::int64_t when = CycleClock::nanoseconds(count, first, clock.pair());
#pragma once

#include <chrono>
#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>

#include "lockstep/base/visibility.h"
#endif

namespace LOCKSTEP_PUBLIC lockstep {

class CycleClock {
 public:
  // One moment, read from both clocks.
  struct Pair {
    std::uint64_t count = 0;
    std::int64_t nanoseconds = 0;
  };

  // Uses the time stamp counter if it is the kernel's own clock source, or if every processor reports that
  // its counter runs at one rate and in every sleep state (constant_tsc, nonstop_tsc). The decision is made
  // once.
  static CycleClock of_this_machine();
  explicit CycleClock(bool counts_cycles) : counts_cycles_(counts_cycles) {}

  bool counts_cycles() const { return counts_cycles_; }
  std::uint64_t now() const {
#if defined(__x86_64__)
    if (counts_cycles_) return __rdtsc();
#endif
    return static_cast<std::uint64_t>(steady_nanoseconds());
  }
  Pair pair() const;

  // Interpolates linearly between two pairs, at `count`. The longer the time between the pairs, the smaller
  // the error.
  static std::int64_t nanoseconds(std::uint64_t count, const Pair& first, const Pair& second);

  static std::int64_t steady_nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  bool counts_cycles_;
};

}  // namespace lockstep
