// Standing: whether a group over NCCL can be used, and the failure that ended it.
//
//   OPEN --fail()--> FAILING --told()--> FAILED
//     |                                    |
//     +--------------end()-----------------+--> ENDED
//
// A failed group is FAILING while its communicators are aborted and the other hosts are told: until then
// NCCL may still be at work on the caller's memory. A group that was ENDED after a failure throws the
// failure.
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
  // What `place` points to lives longer.
  explicit Standing(const GroupPlace& place) : place_(place) {}

  const GroupPlace& place() const { return place_; }  // without the lock, too
  bool is_open() const { return state_ == State::OPEN; }
  bool is_failing() const { return state_ == State::FAILING; }
  bool has_failed() const { return failure_.has_value(); }
  bool has_ended() const { return state_ == State::ENDED; }
  // Nothing of NCCL is at work any more.
  bool is_over() const { return state_ == State::FAILED || state_ == State::ENDED; }

  void fail(GroupFailure failure) {  // of an OPEN group
    failure_ = std::move(failure);
    state_ = State::FAILING;
  }
  void told() { state_ = State::FAILED; }  // of a FAILING one
  void end() { state_ = State::ENDED; }    // of any other

  // `what`: the call that cannot be made, or cannot go on.
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
