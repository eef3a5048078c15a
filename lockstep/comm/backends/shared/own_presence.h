// OwnPresence: whether this process takes part in its group, and whether it may still look at the group's
// memory. The other ranks see RankLine::presence (segment/layout.h).
//
//                 leave()                          go(), when no wait is under way
//   JOINED ----------------------------> LEAVING ----------------------------------> GONE
//      |                                    |
//      | leave() of a group that failed     +--the group fails before go(): LEAVING for good
//      +---------------------------------> FAILED
//
//   JOINED   calls are served
//   LEAVING  calls throw; waits that were under way may still look at the control segment
//   GONE     nothing here looks at the control segment any more: it may be used for another group
//   FAILED   calls throw the failure, which stays readable for good
//
// A process that was forked from a rank is not in the rank's groups: it has not their memory.
//
// Threads: the lock of the group's operations.
#pragma once

#include "lockstep/comm/group/fork_guard.h"

namespace lockstep::shared {

class OwnPresence {
 public:
  enum class State { JOINED, LEAVING, GONE, FAILED };

  State state() const { return state_; }
  const ForkGuard& fork_guard() const { return fork_guard_; }
  bool is_member() const { return !fork_guard_.is_fork() && state_ == State::JOINED; }
  bool has_memory() const { return !fork_guard_.is_fork() && state_ != State::GONE; }

  void leave(bool group_has_failed) { state_ = group_has_failed ? State::FAILED : State::LEAVING; }

  // Called around each wait, which looks at the control segment without the lock.
  void begin_wait() { ++waits_; }
  void end_wait() { --waits_; }

  bool may_go() const { return state_ == State::LEAVING && waits_ == 0; }
  void go() { state_ = State::GONE; }

 private:
  const ForkGuard fork_guard_{};
  State state_ = State::JOINED;
  int waits_ = 0;
};

}  // namespace lockstep::shared
