#include "lockstep/compat/c10d/completion.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "lockstep/compat/c10d/group_work.h"

namespace lockstep::compat::torch_backend {

// `signal` wakes the thread. It is an atomic, so that the destructor takes no lock that a fork may have
// copied in its locked state.
struct Completion::Level {
  std::mutex mutex;
  std::condition_variable advanced;
  std::deque<c10::intrusive_ptr<GroupWork>> waiting;  // guarded by the mutex, as are:
  std::uint64_t added = 0;
  std::uint64_t completed = 0;
  bool has_thread = false;
  std::shared_ptr<Level> deeper;  // for what the callbacks of this level add
  std::atomic<std::uint32_t> signal = 0;
  std::atomic<bool> ends = false;

  void wake() {
    signal.fetch_add(1);
    signal.notify_one();
  }
};

thread_local Completion::Level* Completion::own_level = nullptr;

Completion::Completion() : first_(std::make_shared<Level>()) {}

Completion::~Completion() {
  for (Level* level = first_.get(); level != nullptr; level = level->deeper.get()) {
    level->ends.store(true);
    level->wake();
  }
}

void Completion::add(c10::intrusive_ptr<GroupWork> work) {
  std::shared_ptr<Level> level = first_;
  for (std::shared_ptr<Level> at = first_; at && own_level != nullptr; at = at->deeper) {
    if (at.get() != own_level) continue;
    const std::lock_guard lock(at->mutex);
    if (!at->deeper) at->deeper = std::make_shared<Level>();
    level = at->deeper;
    break;
  }
  {
    const std::lock_guard lock(level->mutex);
    level->waiting.push_back(std::move(work));
    ++level->added;
    if (!std::exchange(level->has_thread, true)) std::thread(&Completion::serve, level).detach();
  }
  level->wake();
}

void Completion::drain() {
  if (own_level != nullptr) return;
  std::unique_lock lock(first_->mutex);
  const std::uint64_t target = first_->added;
  first_->advanced.wait(lock, [&] { return first_->completed >= target; });
}

void Completion::serve(const std::shared_ptr<Level>& level) {
  own_level = level.get();
  while (true) {
    const std::uint32_t seen = level->signal.load();
    c10::intrusive_ptr<GroupWork> work;
    {
      const std::lock_guard lock(level->mutex);
      if (!level->waiting.empty()) {
        work = std::move(level->waiting.front());
        level->waiting.pop_front();
      }
    }
    if (!work) {
      if (level->ends.load()) return;
      level->signal.wait(seen);
      continue;
    }
    work->complete_future();
    work.reset();
    const std::lock_guard lock(level->mutex);
    ++level->completed;
    level->advanced.notify_all();
  }
}

}  // namespace lockstep::compat::torch_backend
