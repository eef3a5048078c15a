// Prefetcher makes items 0, 1, 2, ... on threads of its own, a bounded number ahead, and hands them out in
// that order.
//
//   Prefetcher<Batch> batches({.count = 100, .workers = 2, .ahead = 4},
//                             [&](std::int64_t i) { return make_batch(i); });
//   while (batches.has_next()) use(batches.next());
//
// Order       does not depend on the number of threads. With 0 workers next() makes the item itself.
// Fails       An exception of make(i) leaves the call of next() that would have returned item i. The items
//             after it follow.
// Threads     One thread calls next(). The destructor may run at any time. It waits for running calls of
//             make(), starts no more, and joins the threads.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

struct PrefetcherOptions {
  std::int64_t count = 0;  // number of all items
  int workers = 0;
  int ahead = 1;  // most items that are made and not yet handed out
};

template <typename Item> class Prefetcher {
 public:
  using Make = std::function<Item(std::int64_t)>;

  Prefetcher(const PrefetcherOptions& options, Make make)
      : options_(options), make_(std::move(make)), slots_(static_cast<std::size_t>(options.ahead)) {
    const std::int64_t useful = std::min<std::int64_t>(options_.workers, options_.count);
    for (std::int64_t i = 0; i < useful; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  bool has_next() const { return taken_ < options_.count; }

  Item next() {
    if (threads_.empty()) return make_(taken_++);
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(taken_);
    changed_.wait(lock, [&] { return slot.is_ready; });
    Slot result = std::exchange(slot, {});
    ++taken_;
    lock.unlock();
    changed_.notify_all();
    if (result.error) std::rethrow_exception(result.error);
    return *std::move(result.item);
  }

 private:
  struct Slot {
    bool is_ready = false;
    std::optional<Item> item;
    std::exception_ptr error;
  };

  Slot& slot_of(std::int64_t index) { return slots_[static_cast<std::size_t>(index) % slots_.size()]; }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(
          lock, [&] { return stops_ || claimed_ == options_.count || claimed_ < taken_ + options_.ahead; });
      if (stops_ || claimed_ == options_.count) return;
      const std::int64_t index = claimed_++;
      lock.unlock();
      Slot result{.is_ready = true};
      try {
        result.item.emplace(make_(index));
      } catch (...) {
        result.error = std::current_exception();
      }
      lock.lock();
      slot_of(index) = std::move(result);
      changed_.notify_all();
    }
  }

  const PrefetcherOptions options_;
  const Make make_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_; taken_ is written by the consumer alone.
  std::vector<Slot> slots_;
  std::int64_t claimed_ = 0;
  std::int64_t taken_ = 0;
  bool stops_ = false;

  std::vector<std::jthread> threads_;  // the last member: joined before the data they use are destroyed
};

}  // namespace lockstep
