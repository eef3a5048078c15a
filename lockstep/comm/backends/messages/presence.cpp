#include "lockstep/comm/backends/messages/presence.h"

#include <utility>

namespace lockstep::messages {

void Presence::fail(GroupFailure failure) {
  failure_ = std::move(failure);
  state_ = State::FAILED;
}

void Presence::throw_unusable(const std::string& what) const {
  if (!failure_) throw_left(what, place_);
  throw_failure(what, place_, *failure_, note_);
}

std::exception_ptr Presence::failure_of(const std::string& what) const {
  try {
    throw_unusable(what);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace lockstep::messages
