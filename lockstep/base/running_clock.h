// RunningClock: a clock that counts only time in which this process could run. Timeouts and deadlines are
// measured with it. So a job that was paused (Ctrl-Z, SIGSTOP, a cgroup's freezer, `scontrol suspend`, a
// virtual machine that stood still) continues where it was, however long the pause. A rank that is stopped
// alone still times out for the other ranks, because their clocks go on.
//
//   const auto begun = RunningClock::now();
//   while (!ready()) {
//     if (RunningClock::now() - begun >= timeout) throw Timeout(...);
//     nap(1ms);                                          // or any other sleep, with a `const Nap` around it
//   }
//
// The kernel does not tell a process that it was stopped. So every sleep in the library says how long it was
// meant to last. If it takes SLACK longer than that, the process was stopped, and the time beyond the slack
// does not count. A wait of unknown length sleeps for LONGEST_NAP at a time. A pause therefore costs a
// timeout at most LONGEST_NAP and SLACK. (A laptop that sleeps stops the kernel's clock as well, and costs
// nothing.)
//
// SLACK is 500 ms. On an overloaded machine a nap of 10 ms may take 50 times as long, and still counts in
// full. If naps take even longer, each counts as nap and slack. A timeout then comes later, by a bounded
// factor, but it comes. A debugger that holds a process stops the clock of that process alone. To debug one
// rank of several, raise LOCKSTEP_TIMEOUT. Only a thread that sleeps in a wait of this library notices a
// pause. While a program computes, it has no deadline.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// The sum of all pauses, from the reports of sleeps. If several threads report the same pause, it counts
// once. Threads: any.
class RunningTime {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds SLACK{500};

  // Reports a sleep that began at `from`, was meant to last `asked` at most, and ended at `until`.
  void slept(Time from, std::chrono::nanoseconds asked, Time until) {
    if (until - from <= SLACK || until - from - SLACK <= asked) return;
    const std::lock_guard lock(mutex_);
    const Time begin = std::max(from + asked + SLACK, last_end_);
    if (until <= begin) return;
    last_end_ = until;
    ends_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
    stopped_.fetch_add((until - begin).count(), std::memory_order_release);
  }
  // How long this process has been stopped so far.
  std::chrono::nanoseconds stopped() const {
    return std::chrono::nanoseconds(stopped_.load(std::memory_order_acquire));
  }
  // When the last stop ended; the clock's beginning if there was none.
  Time last_end() const {
    return Time(std::chrono::steady_clock::duration(ends_.load(std::memory_order_relaxed)));
  }

 private:
  std::mutex mutex_;
  Time last_end_;  // guarded by mutex_
  std::atomic<std::int64_t> ends_{0};
  std::atomic<std::int64_t> stopped_{0};
};

// That of this process.
inline RunningTime running_time;

// A function that waits of this thread call now and then: see wait_reminder.h.
class DuringNaps {
 public:
  virtual void look() = 0;

 protected:
  ~DuringNaps() = default;
};
inline thread_local DuringNaps* during_naps = nullptr;

struct RunningClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<RunningClock>;
  static constexpr bool is_steady = false;  // it is set back by the length of a stop when the stop is noticed

  static time_point now() {
    return time_point(std::chrono::steady_clock::now().time_since_epoch() - running_time.stopped());
  }
  // Since when this process has run without a stop, as far as it knows.
  static std::chrono::nanoseconds since_stop() {
    return std::chrono::steady_clock::now() - running_time.last_end();
  }
};

// A wait of unknown length sleeps for this long at a time.
inline constexpr std::chrono::milliseconds LONGEST_NAP{250};

// Surrounds a call that sleeps: reports the meant and the actual duration to the clock.
class Nap {
 public:
  explicit Nap(std::chrono::nanoseconds asked,
               std::chrono::steady_clock::time_point from = std::chrono::steady_clock::now())
      : asked_(asked), from_(from) {}
  Nap(const Nap&) = delete;
  Nap& operator=(const Nap&) = delete;
  ~Nap() {
    running_time.slept(from_, asked_, std::chrono::steady_clock::now());
    if (during_naps != nullptr) during_naps->look();
  }

 private:
  const std::chrono::nanoseconds asked_;
  const std::chrono::steady_clock::time_point from_;
};

inline void nap(std::chrono::nanoseconds span) {
  const Nap nap(span);
  std::this_thread::sleep_for(span);
}

}  // namespace lockstep
