// PendingOperations: the operations of a group that are not done, the lock that guards them, and the waits
// for them.
//
//   auto lock = pending.lock();
//   pending.add(operation);
//   pending.advance(4);                        // a little of each, oldest first
//   pending.wait(lock, *operation, timeout);   // returns when it is ready, else throws the group's failure
//
// There is no progress thread. A rank works on its own and other ranks' operations inside the calls that it
// makes anyway.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>

#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/backends/shared/waitable.h"

namespace lockstep::shared {

class Operation;

inline constexpr std::size_t ALL_SLICES = std::numeric_limits<std::size_t>::max();

class PendingOperations {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit PendingOperations(Context& context) : context_(context) {}

  // Guards this list, its operations, and the context's parts.
  Lock lock() { return Lock(mutex_); }
  Lock try_lock() { return {mutex_, std::try_to_lock}; }

  // ---- with the lock held
  bool empty() const { return operations_.empty(); }
  void add(std::shared_ptr<Operation> operation) { operations_.push_back(std::move(operation)); }
  // Advances all operations, oldest first. Each may do at most `slices` slices.
  void advance(std::size_t slices);
  // Gives up all operations. Their waits find out.
  void give_up();
  // Returns when the target is ready. Otherwise records and throws the failure. Unlocks while it sleeps.
  void wait(Lock& lock, Waitable& target, std::optional<std::chrono::nanoseconds> timeout);

 private:
  Context& context_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Operation>> operations_;
};

}  // namespace lockstep::shared
