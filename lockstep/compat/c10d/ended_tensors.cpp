#include "lockstep/compat/c10d/ended_tensors.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor_call.h"

namespace lockstep::compat::torch_backend {
namespace {

struct Ended {
  std::mutex mutex;
  std::vector<std::shared_ptr<void>> tensors;
  std::atomic<bool> are_some = false;
};

// Never destroyed, because threads may end operations while the process exits.
Ended& ended() {
  static Ended* const all = new Ended;
  return *all;
}

void take_over(std::shared_ptr<void> tensors) {
  const std::lock_guard lock(ended().mutex);
  ended().tensors.push_back(std::move(tensors));
  ended().are_some.store(true, std::memory_order_relaxed);
}

}  // namespace

void take_over_ended_tensors() { set_take_over(&take_over); }

void drop_ended_tensors() {
  if (!ended().are_some.load(std::memory_order_relaxed)) return;
  std::vector<std::shared_ptr<void>> mine;
  const std::lock_guard lock(ended().mutex);
  mine.swap(ended().tensors);
  ended().are_some.store(false, std::memory_order_relaxed);
}

}  // namespace lockstep::compat::torch_backend
