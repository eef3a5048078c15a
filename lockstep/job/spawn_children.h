// SpawnContext::Children: the half of spawn() that stays in the calling process: it owns the ranks until all
// have ended.
//
//              a rank fails            300 ms              500 ms
//   RUNNING ───────────────▶ REPORTING ───────▶ STOPPING ─────────▶ KILLING
//
// Only job/spawn.cpp uses it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/job/spawn.h"
#include "lockstep/job/spawn_child.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/fd.h"

namespace lockstep {

class SpawnContext::Children {
 public:
  // Starts the ranks. Throws SystemError, after it has ended those that it had started.
  explicit Children(SpawnCall call);
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();

  // Returns false if some ranks still run at the deadline. Throws SpawnError.
  bool join(Deadline deadline);
  std::vector<pid_t> pids() const;

 private:
  struct Child {
    int rank = 0;
    pid_t pid = 0;
    Fd report;
    std::string text;  // the rank's reports through the pipe
    std::optional<ExitStatus> status;
    // 1 for the first rank that failed, 2 for the next. 0: it has not failed, or only after it was stopped.
    unsigned failed = 0;
  };
  enum class State { RUNNING, REPORTING, STOPPING, KILLING };

  void start();
  void step(Deadline deadline);
  void look_at(Child& child);
  bool has_failed(const Child& child) const;
  void advance();
  void stop_all(int signal) const;
  bool any_running() const;
  [[noreturn]] void throw_first() const;
  std::string what_happened(const Child& child) const;

  SpawnCall call_;
  State state_ = State::RUNNING;
  Deadline deadline_ = Deadline::never();  // of the current state
  unsigned failures_ = 0;
  std::vector<Child> children_;
};

}  // namespace lockstep
