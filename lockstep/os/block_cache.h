// BlockCache: keeps large memory blocks when they are freed, and hands them out again. A training loop would
// otherwise pay the kernel's price for fresh memory at every step: mapping it, and a fault for every 4 KiB
// of it.
//
//   BlockCache cache(/*cap=*/std::size_t{4} << 30U);
//   void* block = cache.allocate(bytes);              // 64-byte aligned, contents unspecified
//   cache.free(block);                                // kept for the next allocation
//   cache.empty();                                    // everything kept goes back to the kernel
//
// Sizes       requests below SMALLEST go to malloc, which is good at them. Other blocks are whole pages, at
//             most 6.25 % more than asked for. Nothing is stored beside a block. Of malloc's blocks, only
//             those that begin a page by chance are looked up when they are freed.
// Which       a block is taken at the lowest address at which the kept memory has room. So a training step
//             works in little more memory than it has in use at once, and that memory stays in the
//             processor's caches.
// Huge pages  are asked for, for all of it. Blocks are carved side by side from regions of address space, so
//             that their ends share huge pages with their neighbours.
// Given back  memory beyond the cap; the smallest amount that was kept unused throughout IDLE_TIME; and
//             everything kept when memory is scarce (memory_pressure.h) or the kernel refuses any. The
//             highest addresses go first. Freeing a block looks for idle memory and for scarcity, for
//             scarcity at most four times in IDLE_TIME.
// Threads     any; one lock. A forked child may go on using the cache: fork waits for the lock.
// Fails       std::bad_alloc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "lockstep/base/visibility.h"
#include "lockstep/os/free_ranges.h"
#include "lockstep/os/memory_pressure.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct BlockCacheStats {
  std::size_t in_use_bytes = 0;  // whole pages, in blocks of SMALLEST and more
  std::size_t cached_bytes = 0;
  std::size_t cap_bytes = 0;
  std::uint64_t reused = 0;    // allocations that got kept memory and nothing else
  std::uint64_t mapped = 0;    // allocations that took fresh memory of the kernel
  std::uint64_t returned = 0;  // ranges given back to it
};

class BlockCache {
 public:
  static constexpr std::size_t SMALLEST = std::size_t{64} << 10U;
  static constexpr std::size_t REGION =
      std::size_t{1} << 30U;  // of addresses; where so many are refused, as many as are needed
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
  std::uintptr_t take_fresh(std::size_t bytes);
  std::optional<std::uintptr_t> take_clean(std::size_t bytes);
  bool map_region(std::size_t bytes);
  void keep(AddressRange block, Clock::time_point now);
  void look(Clock::time_point now);
  void give_back_down_to(std::size_t bytes);
  void give_back(AddressRange range);

  const IsScarce is_scarce_;
  mutable std::mutex mutex_;
  // guarded by mutex_
  std::map<std::uintptr_t, std::size_t> regions_;
  FreeRanges kept_;   // free, with memory
  FreeRanges clean_;  // free, without
  std::unordered_map<void*, std::size_t> in_use_;
  std::size_t cap_;
  std::size_t least_kept_ = 0;  // since the last time that idle memory was given back
  BlockCacheStats stats_;       // but for what the members above say
  Clock::time_point next_look_;
  Clock::time_point next_trim_;
};

}  // namespace lockstep
