// How a rank waits for others: spin, then give the core away, then sleep.
//
//   Backoff backoff(ranks);
//   while (!done()) backoff.pause(control, done);
//
// With a CPU for every rank, a late peer is usually microseconds away. The waiting rank therefore spins for
// about 20 us. With more ranks than CPUs, the awaited rank may need the spinning rank's CPU. The waiting rank
// then yields almost at once, because pure spinning costs a scheduler slice (4 ms) a step. Where other
// processes compete for the CPUs, a yield lasts as long as their slices. Yielding therefore ends after 2 ms.
// After that the waiting rank sleeps on the group's doorbell. A sleep lasts at most 10 ms, so that dead peers
// are noticed. This costs under 0.1 % of a core.
//
// The CPUs are counted once, when the ranks of a job meet (cpus_of_ranks). The count is for all ranks
// together, from affinity masks and cgroup quota (os/cpu_share.h). A launcher that binds each rank to its own
// core leaves every rank a free core. Two ranks under `taskset -c 0`, or under a quota of one CPU, compete
// for it. A later change of the mask is not noticed. Making a Backoff costs a load.
#pragma once

#include <atomic>
#include <chrono>

#include "lockstep/base/running_clock.h"
#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/os/futex.h"
#include "lockstep/os/process.h"

namespace lockstep::shared {

// Number of CPUs that this process has together with the ranks it shares memory with. A process is in one job
// at a time.
inline std::atomic<int> cpus_of_ranks{1};

class Backoff {
 public:
  explicit Backoff(int ranks) : spins_(ranks <= cpus_of_ranks.load(std::memory_order_relaxed) ? 400 : 20) {}

  bool has_spun() const { return round_ >= spins_; }
  // Restarts the spinning phase, because the awaited operation makes progress.
  void begin_again() { round_ = 0; }
  // Pauses once. Returns true if it slept, so that the caller looks at clocks and peers. `done` is checked
  // again before sleeping.
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
    // Pairs with the fence in Control::ring(): either ring() sees this sleeper, or `done` sees the change.
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
