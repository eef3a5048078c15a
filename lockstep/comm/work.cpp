#include "lockstep/comm/work.h"

#include "lockstep/base/exception_text.h"

namespace lockstep {

void Work::wait_for(std::optional<std::chrono::nanoseconds> timeout) const {
  if (!state_) return;
  try {
    state_->wait(timeout);
  } catch (...) {
    if (state_->poll()) run_callbacks();
    throw;
  }
  run_callbacks();
}

bool Work::is_completed() const {
  if (!state_) return true;
  if (!state_->poll()) return false;
  run_callbacks();
  return true;
}

std::string Work::error_text() const { return exception_text(exception()); }

void Work::add_callback(std::function<void(const Work&)> callback) const {
  if (state_) {
    const std::lock_guard lock(state_->callbacks_mutex_);
    if (!state_->seen_) {
      state_->callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(*this);
}

// Does nothing within a callback, because callbacks run in order.
void Work::run_callbacks() const {
  // a callback may assign to the Work through which it was called
  const std::shared_ptr<WorkState> state = state_;
  while (true) {
    WorkState::Callback callback;
    {
      const std::lock_guard lock(state->callbacks_mutex_);
      state->seen_ = true;
      if (state->running_ || state->callbacks_.empty()) return;
      state->running_ = true;
      callback = std::move(state->callbacks_.front());
      state->callbacks_.pop_front();
    }
    const std::shared_ptr<void> ended(nullptr, [&](void*) {
      const std::lock_guard lock(state->callbacks_mutex_);
      state->running_ = false;
    });
    callback(Work(state));
  }
}

}  // namespace lockstep
