// BlockCache: large memory blocks that are kept when freed and handed out again, because the kernel's price for a fresh block
// (mapping it, and a fault for every 4 KiB of it) is paid by a training loop at every step otherwise.
//
//   BlockCache cache(/*cap=*/std::size_t{4} << 30U);
//   void* block = cache.allocate(bytes);              // 64-byte aligned, contents unspecified
//   cache.free(block);                                // kept for the next allocation of its size class
//   cache.empty();                                    // everything kept goes back to the kernel
//
// Sizes       Requests below SMALLEST go to malloc, which is good at them. Others are rounded up to one of eight sizes per
//             power of two, so that at most 12.5 % are wasted, and reused only within their size. Nothing is stored beside a
//             block: of malloc's blocks only those that begin a page by chance are looked up when freed.
// Huge pages  are asked for, for all of it. Sizes from OWN_MAPPING on are multiples of 2 MiB and mapped one by one; smaller
//             blocks are carved side by side from regions, so that their ends share huge pages with their neighbours. Where
//             a block was carved remains the place of its size: when it is given back, its pages go, not its addresses.
// Given back  blocks that would exceed the cap, blocks that nobody asked for during IDLE_TIME, and everything kept when
//             memory is scarce (memory_pressure.h) or the kernel refuses any. Idle blocks and scarcity are looked for when
//             blocks are freed, at most four times in IDLE_TIME.
// Threads     any; one lock. A forked child may go on using the cache: fork waits for the lock.
// Fails       std::bad_alloc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "lockstep/os/memory_pressure.h"

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
  static constexpr std::size_t OWN_MAPPING = std::size_t{16} << 20U;
  static constexpr std::chrono::seconds IDLE_TIME{10};
  using Clock = std::chrono::steady_clock;
  using IsScarce = bool (*)();

  explicit BlockCache(
      std::size_t cap, IsScarce is_scarce = [] { return memory_is_scarce(); })
      : is_scarce_(is_scarce), cap_(cap) {}
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
  struct SizeClass {
    std::vector<Kept> kept;    // the most recently freed last
    std::vector<void*> empty;  // carved places without memory
  };

  void* take_kept(std::size_t size);
  void* take_fresh(std::size_t size);
  void* carve(std::size_t size);
  void keep(void* block, std::size_t size, Clock::time_point now);
  void look(Clock::time_point now);
  void give_back_down_to(std::size_t bytes);
  void give_back_idle(Clock::time_point now);
  void give_back(std::size_t size, void* block);

  const IsScarce is_scarce_;
  mutable std::mutex mutex_;
  // guarded by mutex_
  std::map<std::size_t, SizeClass> classes_;
  std::unordered_map<void*, std::size_t> sizes_;  // of every block and every carved place
  std::byte* region_ = nullptr;                   // the part that nothing was carved from yet
  std::size_t region_bytes_ = 0;
  std::size_t cap_;
  BlockCacheStats stats_;
  Clock::time_point next_look_;
};

}  // namespace lockstep
