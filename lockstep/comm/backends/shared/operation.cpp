#include "lockstep/comm/backends/shared/operation.h"

#include "lockstep/os/process.h"

namespace lockstep::shared {

void Operation::wait(std::optional<std::chrono::nanoseconds> timeout) {
  auto lock = pending_->lock();
  if (state_ == State::PENDING) pending_->wait(lock, *this, timeout);
  if (exception_) std::rethrow_exception(exception_);
}

bool Operation::done_soon(int spins) {
  for (int i = 0; i < spins; ++i) {
    if (advance(ALL_SLICES)) {
      if (exception_) std::rethrow_exception(exception_);
      return true;
    }
    relax_cpu();
  }
  return false;
}

bool Operation::poll() {
  const auto lock = pending_->lock();
  if (state_ == State::PENDING) pending_->advance(ALL_SLICES);
  return advance(ALL_SLICES);  // the operation may no longer be in the list, because the group was closed
}

std::exception_ptr Operation::exception() const {
  const auto lock = pending_->lock();
  return exception_;
}

bool Operation::ready() {
  if (state_ == State::PENDING) pending_->advance(ALL_SLICES);
  return state_ != State::PENDING;
}

bool Operation::advance(std::size_t slices) {
  if (state_ != State::PENDING) return true;
  try {
    // A complete operation stays complete after a failure. `usable` is therefore read first: a peer may
    // complete this operation, return, and fail in another one, all between the two looks.
    const bool was_usable = context_->usable();
    if (context_->is_member() && try_advance(slices)) {
      state_ = State::DONE;
      context_->recorder().finish(ticket_, FlightRecorder::DONE);
    } else if (!was_usable) {
      context_->throw_unusable(describe());
    }
  } catch (...) {
    fail(std::current_exception());
  }
  if (state_ != State::PENDING) request_.keep_alive.reset();
  return state_ != State::PENDING;
}

void Operation::fail(std::exception_ptr error) {
  exception_ = std::move(error);
  state_ = State::FAILED;
  // not in a forked child
  if (context_->is_member()) context_->recorder().finish(ticket_, FlightRecorder::FAILED);
  // This rank alone has an error, and holds a part that no other rank does. The other ranks must not wait for
  // it.
  if (context_->usable()) context_->record_failure(given_up(context_->rank(), describe(), exception_));
  give_up();
}

}  // namespace lockstep::shared
