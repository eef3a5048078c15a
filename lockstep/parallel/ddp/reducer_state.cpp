#include "lockstep/parallel/ddp/reducer_state.h"

#include "lockstep/base/error.h"
#include "lockstep/base/exception_text.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Returns whether the error has closed the group already, for every rank.
bool came_from_the_group(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    const ErrorCode code = known.code();
    return code == ErrorCode::PEER_LOST || code == ErrorCode::TIMEOUT || code == ErrorCode::MISMATCH ||
           code == ErrorCode::ABORTED;
  } catch (...) {
    return false;
  }
}

}  // namespace

void ReducerState::rethrow_failure() const {
  if (is(State::FAILED)) std::rethrow_exception(failure_);
}

void ReducerState::fail(const std::exception_ptr& error) {
  if (is(State::FAILED)) return;  // the first failure is reported
  transition(State::FAILED);
  failure_ = error;
  if (came_from_the_group(error)) return;
  try {
    group_.abort(exception_text(error));
  } catch (...) {  // the error that led here matters more; peers still have their deadline
  }
}

void ReducerState::transition(State next) {
  const auto goes = [&](State from, State to) { return state_ == from && next == to; };
  const bool drawn = next == State::FAILED || goes(State::IDLE, State::COLLECTING) ||
                     goes(State::COLLECTING, State::WAITING) || goes(State::WAITING, State::IDLE) ||
                     goes(State::IDLE, State::ACCUMULATING) || goes(State::ACCUMULATING, State::IDLE);
  if (!drawn) {
    throw InternalError(str("DDP reducer: no transition from state ", static_cast<int>(state_), " to ",
                            static_cast<int>(next)));
  }
  state_ = next;
  claims_.set_in_pass(!is(State::IDLE) && !is(State::FAILED));
}

}  // namespace lockstep
