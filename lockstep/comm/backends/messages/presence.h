// Presence: whether this rank is still in its group, and the group's first failure, which every later call
// throws.
//
//   MEMBER --fail()--> FAILED --leave()--> LEFT
//     |--------------leave()----------------^
//
// A rank that has left after a failure throws the failure. Threads: the fabric's lock.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "lockstep/comm/group/group_failure.h"

namespace lockstep::messages {

class Presence {
 public:
  // `place` refers to texts that must live longer than the presence.
  explicit Presence(const GroupPlace& place) : place_(place) {}

  bool is_member() const { return state_ == State::MEMBER; }
  bool has_left() const { return state_ == State::LEFT; }
  // Records the first failure. This rank must be a member.
  void fail(GroupFailure failure);
  // Adds a last sentence to the failure's message, which says where the trace is.
  void add_note(std::string note) { note_ = std::move(note); }
  void leave() { state_ = State::LEFT; }

  const std::optional<GroupFailure>& failure() const { return failure_; }
  // `what` names the call that cannot be made, or cannot go on.
  [[noreturn]] void throw_unusable(const std::string& what) const;
  std::exception_ptr failure_of(const std::string& what) const;

 private:
  enum class State { MEMBER, FAILED, LEFT };

  const GroupPlace place_;
  State state_ = State::MEMBER;
  std::optional<GroupFailure> failure_;
  std::string note_;
};

}  // namespace lockstep::messages
