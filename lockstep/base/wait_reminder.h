// WaitReminder: makes long waits log their reason now and then. The outermost call gives its name and the
// time after which to log. Each wait below it says what it waits for. Every sleep (Nap, running_clock.h)
// checks the time.
//
//   const WaitReminder reminder(5s, "init_process_group, rank 0 of 4", "this rank was started by torchrun");
//   ...
//   const Awaited awaited([&] { return "rank(s) " + number_list(missing); });      // in a call within the
//                                                                                  // reminder's scope
//   wait();              // WARNING init_process_group, rank 0 of 4: waiting for 5 s for rank(s) 1, 3; this
//                        // rank was started by torchrun
//
// A wait is logged after that time, after twice as long, and so on. Without a reminder, an Awaited does
// nothing. Threads: a reminder serves the waits of its own thread.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/running_clock.h"

namespace lockstep {

class Awaited {
 public:
  explicit Awaited(std::function<std::string()> what);
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  ~Awaited();

 private:
  friend class WaitReminder;
  const std::function<std::string()> what_;
  const RunningClock::time_point begun_ = RunningClock::now();
  int said_ = 0;  // number of messages so far
  Awaited* const outer_;
};

// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): nothing is derived from it
class WaitReminder final : public DuringNaps {
 public:
  WaitReminder(std::chrono::nanoseconds after, std::string where, std::string how);
  WaitReminder(const WaitReminder&) = delete;
  WaitReminder& operator=(const WaitReminder&) = delete;
  ~WaitReminder();

 private:
  void look() override;

  const std::chrono::nanoseconds after_;
  const std::string where_;
  const std::string how_;
  DuringNaps* const outer_;
};

}  // namespace lockstep
