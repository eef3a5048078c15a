// Standing: whether a group over NCCL can be used, and the failure that ended it.
//
//   OPEN --fail()--> FAILING --told()--> FAILED
//     |                                    |
//     +--------------end()-----------------+--> ENDED
//
// A failed group is FAILING while its communicators are aborted and the other hosts are told. Until then NCCL
// may still use the caller's memory. A group that was ENDED after a failure throws that failure.
//
// Threads: the core's lock.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/comm/group/group_failure.h"

namespace lockstep::nccl {

class Standing {
 public:
  // `place` refers to texts that must live longer than the standing.
  explicit Standing(const GroupPlace& place) : place_(place) {}

  const GroupPlace& place() const { return place_; }  // may be called without the lock
  bool is_open() const { return state_ == State::OPEN; }
  bool is_failing() const { return state_ == State::FAILING; }
  bool has_failed() const { return failure_.has_value(); }
  bool has_ended() const { return state_ == State::ENDED; }
  // NCCL no longer uses any memory.
  bool is_over() const { return state_ == State::FAILED || state_ == State::ENDED; }

  void fail(GroupFailure failure) {  // only of an OPEN group
    failure_ = std::move(failure);
    state_ = State::FAILING;
  }
  void told() { state_ = State::FAILED; }  // only of a FAILING group
  void end() { state_ = State::ENDED; }    // of a group in any other state

  // `what` names the call that cannot be made, or cannot go on.
  [[noreturn]] void throw_unusable(const std::string& what) const {
    if (!failure_) throw_left(what, place_);
    throw_failure(what, place_, *failure_);
  }
  std::exception_ptr failure_of(const std::string& what) const {
    try {
      throw_unusable(what);
    } catch (...) {
      return std::current_exception();
    }
  }

 private:
  enum class State { OPEN, FAILING, FAILED, ENDED };

  const GroupPlace place_;
  State state_ = State::OPEN;
  std::optional<GroupFailure> failure_;
};

}  // namespace lockstep::nccl
