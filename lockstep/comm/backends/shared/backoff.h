// How a rank waits for others: spin, then give the core away, then sleep.
//
//   Backoff backoff(ranks);
//   while (!done()) backoff.pause(control, done);
//
// With as many CPUs as ranks, a late peer is usually microseconds away: spin for about 20 us. With more ranks
// than CPUs the awaited rank may need this very one: yield almost at once (pure spinning costs a scheduler
// slice, 4 ms, a step). Where others want the cores as well, a yield lasts as long as their slices: 2 ms of
// it are enough. After that sleep on the group's doorbell, 10 ms at most, so that dead peers are noticed:
// under 0.1 % of a core.
//
// How many CPUs there are is asked once, when the ranks of a job meet (cpus_of_ranks): it is what all of them
// have together by affinity masks and cgroup quota (os/cpu_share.h), because a launcher's binding leaves each
// rank one core and yet none is in the way of another, while two ranks under `taskset -c 0`, or under a quota
// of one CPU, are. A mask that changes later is not noticed. Making a Backoff costs a load.
#pragma once

#include <atomic>
#include <chrono>

#include "lockstep/base/running_clock.h"
#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/os/futex.h"
#include "lockstep/os/process.h"

namespace lockstep::shared {

// The CPUs that this process and the ranks it shares memory with have together. A process is in one job at a
// time.
inline std::atomic<int> cpus_of_ranks{1};

class Backoff {
 public:
  explicit Backoff(int ranks) : spins_(ranks <= cpus_of_ranks.load(std::memory_order_relaxed) ? 400 : 20) {}

  bool has_spun() const { return round_ >= spins_; }
  // As if the wait began now, because its target makes progress.
  void begin_again() { round_ = 0; }
  // Pauses once; true if it slept (time to look at clocks and peers). `done` is checked again before
  // sleeping.
  template <typename Done> bool pause(const Control& control, Done done) {
    ++round_;
    if (round_ <= spins_) {
      for (int i = 0; i < 4; ++i) relax_cpu();
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
    // Pairs with the ringer's increment: a rank that reads the new number sees the change as well, and
    // does not sleep on it.
    const std::uint32_t seen = header.doorbell.load(std::memory_order_acquire);
    if (!done()) {
      const Nap nap(LONGEST_SLEEP, now);
      futex_wait(header.doorbell, seen, LONGEST_SLEEP);
    }
    header.sleepers.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int YIELDS = 100;
  static constexpr std::chrono::milliseconds LONGEST_YIELDING{2};
  static constexpr std::chrono::milliseconds LONGEST_SLEEP{10};

  const int spins_;
  int round_ = 0;
  Clock::time_point yielding_since_;
};

}  // namespace lockstep::shared
