// How a rank waits for others: spin, then give the core away, then sleep.
//
//   Backoff backoff(ranks);
//   while (!done()) backoff.pause(control, done);
//
// With as many cores as ranks, a late peer is usually microseconds away: spin for about 20 us. With more ranks than cores
// the awaited rank may need this very core: yield almost at once (pure spinning costs a scheduler slice, 4 ms, a step).
// Where others want the cores as well, a yield lasts as long as their slices: 2 ms of it are enough.
// After that sleep on the group's doorbell, 10 ms at most, so that dead peers are noticed: under 0.1 % of a core.
#pragma once

#include <chrono>

#include "lockstep/comm/backends/shared_layout.h"
#include "lockstep/os/futex.h"
#include "lockstep/os/process.h"

namespace lockstep::shared {

class Backoff {
 public:
  explicit Backoff(int ranks) : spins_(ranks <= online_cpus() ? 400 : 20) {}

  // Pauses once; true if it slept (time to look at clocks and peers). `done` is checked again before sleeping.
  template <typename Done> bool pause(const Control& control, Done done) {
    ++round_;
    if (round_ <= spins_) {
      for (int i = 0; i < 4; ++i) relax();
      return false;
    }
    const auto now = Clock::now();
    if (round_ == spins_ + 1) yielding_since_ = now;
    if (round_ <= spins_ + YIELDS && now - yielding_since_ < LONGEST_YIELDING) {
      yield_cpu();
      return false;
    }
    Header& header = control.header();
    header.sleepers.fetch_add(1, std::memory_order_relaxed);
    // Pairs with the fence in Control::ring(): either that sees this sleeper, or `done` sees the change.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // Pairs with the ringer's increment: whoever reads the new number sees the change as well, and does not sleep on it.
    const std::uint32_t seen = header.doorbell.load(std::memory_order_acquire);
    if (!done()) futex_wait(header.doorbell, seen, std::chrono::milliseconds(10));
    header.sleepers.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int YIELDS = 100;
  static constexpr std::chrono::milliseconds LONGEST_YIELDING{2};
  static void relax() {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  }

  const int spins_;
  int round_ = 0;
  Clock::time_point yielding_since_;
};

}  // namespace lockstep::shared
