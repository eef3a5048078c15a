// BlockCache: large memory blocks that are kept when freed and handed out again, because the kernel's price for a fresh block
// (mapping it, and a fault for every 4 KiB of it) is paid by a training loop at every step otherwise.
//
//   BlockCache cache(/*cap=*/std::size_t{4} << 30U);
//   void* block = cache.allocate(bytes);              // 64-byte aligned, contents unspecified
//   cache.free(block);                                // kept for the next allocation of its size class
//   cache.empty();                                    // everything kept goes back to the kernel
//
// Sizes       Requests below SMALLEST go to malloc, which is good at them. Others are rounded up to one of eight sizes per
//             power of two, so that at most 12.5 % (and 64 bytes) are wasted, and reused only within their size.
// Given back  blocks that would exceed the cap, blocks that nobody asked for during IDLE_TIME (looked at when blocks are
//             freed), and everything kept when the kernel refuses memory. Huge pages are asked for from 2 MiB on.
// Threads     any; one lock. A forked child may go on using the cache: fork waits for the lock.
// Fails       std::bad_alloc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace lockstep {

// The size a request is rounded up to; `bytes` itself below BlockCache::SMALLEST. Pure.
std::size_t block_size_class(std::size_t bytes);

struct BlockCacheStats {
  std::size_t in_use_bytes = 0;  // of size classes, in blocks of SMALLEST and more
  std::size_t cached_bytes = 0;
  std::size_t cap_bytes = 0;
  std::uint64_t reused = 0;    // allocations that got a kept block
  std::uint64_t mapped = 0;    // allocations that went to the kernel
  std::uint64_t returned = 0;  // blocks given back to it
};

class BlockCache {
 public:
  static constexpr std::size_t SMALLEST = std::size_t{64} << 10U;
  static constexpr std::chrono::seconds IDLE_TIME{10};
  using Clock = std::chrono::steady_clock;

  explicit BlockCache(std::size_t cap) : cap_(cap) {}
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache();  // gives back what is kept; blocks in use stay valid, but must not be freed any more

  void* allocate(std::size_t bytes);
  void free(void* block) { free(block, Clock::now()); }
  void free(void* block, Clock::time_point now);  // null is allowed
  void empty();
  void set_cap(std::size_t bytes);
  BlockCacheStats stats() const;

  // Around fork(): holds the lock, so that the child does not inherit it locked.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  struct Kept {
    void* block;
    Clock::time_point since;
  };

  void* map(std::size_t size);
  void* take(std::size_t size);
  void give_back_down_to(std::size_t bytes);
  void give_back_idle(Clock::time_point now);
  void release(std::size_t size, const Kept& kept);

  mutable std::mutex mutex_;
  // guarded by mutex_
  std::map<std::size_t, std::vector<Kept>> kept_;  // by size, the most recently freed last
  std::size_t cap_;
  BlockCacheStats stats_;
  Clock::time_point next_look_;
};

}  // namespace lockstep
