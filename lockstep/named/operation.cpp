#include "lockstep/named/operation.h"

#include <utility>

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

// One of two threads that begin the same operation gets false.
bool Operation::begin(const void* input, void* output) {
  if (!ended_.exchange(false)) return false;
  given_.input = input;
  given_.output = output;
  failure_ = nullptr;
  result_ = {};
  return true;
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
void Operation::end_all(const Operations& operations, const std::exception_ptr& failure) {
  if (operations.empty()) return;
  Waiters& waiters = *operations.front()->waiters_;
  for (const auto& operation : operations) {
    operation->failure_ = failure;
    operation->given_.keep_alive.reset();
  }
  std::vector<std::function<void()>> told;
  {
    const std::lock_guard lock(waiters.mutex);
    for (const auto& operation : operations) {
      operation->ended_.store(true, std::memory_order_release);
      if (operation->told_) told.push_back(std::exchange(operation->told_, nullptr));
      if (std::exchange(operation->is_awaited_, false)) waiters.count.fetch_sub(1);
    }
  }
  if (waiters.count.load() > 0) waiters.ended.notify_all();
  for (const auto& tell : told) tell();
}

}  // namespace lockstep::named
