#include "lockstep/named/operation.h"

#include "lockstep/base/running_clock.h"
#include "lockstep/named/doorbell.h"

namespace lockstep::named {

void Operation::wait() const {
  if (!poll()) {
    waiters_->count.fetch_add(1);
    waiters_->bell->ring();
    std::unique_lock lock(waiters_->mutex);
    while (!poll()) {
      const Nap nap(LONGEST_NAP);
      waiters_->ended.wait_for(lock, LONGEST_NAP);
    }
    waiters_->count.fetch_sub(1);
  }
  if (failure_) std::rethrow_exception(failure_);
}

void Operation::notify(std::function<void()> ended, bool is_awaited) {
  {
    const std::lock_guard lock(waiters_->mutex);
    if (!poll()) {
      told_ = std::move(ended);
      ended = nullptr;
      is_awaited_ = is_awaited;
      if (is_awaited) waiters_->count.fetch_add(1);
    }
  }
  if (ended) return ended();
  if (is_awaited) waiters_->bell->ring();
}

// The lock is what orders this with a waiter between its look and its sleep.
void Operation::end(std::exception_ptr failure) {
  failure_ = std::move(failure);
  given_.keep_alive.reset();
  std::function<void()> told;
  {
    const std::lock_guard lock(waiters_->mutex);
    ended_.store(true, std::memory_order_release);
    told.swap(told_);
    if (is_awaited_) waiters_->count.fetch_sub(1);
  }
  if (waiters_->count.load() > 0) waiters_->ended.notify_all();
  if (told) told();
}

}  // namespace lockstep::named
