// BlockCache: keeps large memory blocks when they are freed, and returns them to later allocations. Without
// it, a training loop would pay for fresh memory at every step: a mapping, and a page fault for every 4 KiB.
//
//   BlockCache cache(/*cap=*/std::size_t{4} << 30U);
//   void* block = cache.allocate(bytes);              // 64-byte aligned, contents unspecified
//   cache.free(block);                                // kept for the next allocation
//   cache.empty();                                    // all kept memory goes back to the kernel
//
// Sizes       requests below SMALLEST go to malloc. Larger blocks are whole pages, at most 6.25 % more than
//             the request. The cache stores no header beside a block. To free a block of malloc's, it
//             searches its table only if the block happens to begin a page.
// Which       an allocation takes the lowest address at which the kept memory has room. So a training step
//             works in little more memory than it has in use at once, and that memory stays in the
//             processor's caches.
// Huge pages  are requested for all of it. Blocks lie side by side in large regions of address space, so that
//             neighbours share the huge pages at their ends.
// Given back  memory beyond the cap; the smallest amount that stayed unused throughout IDLE_TIME; and all
//             kept memory if the machine is short of memory (memory_pressure.h) or the kernel refuses a
//             request. The highest addresses go first. free() makes these checks, and it checks for scarcity
//             at most four times in IDLE_TIME.
// Threads     any; one lock. A forked child may use the cache too: fork waits for the lock.
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
  std::uint64_t reused = 0;    // allocations that needed only kept memory
  std::uint64_t mapped = 0;    // allocations that needed fresh memory of the kernel
  std::uint64_t returned = 0;  // ranges given back to the kernel
};

class BlockCache {
 public:
  static constexpr std::size_t SMALLEST = std::size_t{64} << 10U;
  // Of address space. If the kernel refuses so much, a region is only as large as the allocation needs.
  static constexpr std::size_t REGION = std::size_t{1} << 30U;
  static constexpr std::chrono::seconds IDLE_TIME{10};
  using Clock = std::chrono::steady_clock;
  using IsScarce = bool (*)();

  explicit BlockCache(
      std::size_t cap, IsScarce is_scarce = [] { return memory_is_scarce(); })
      : is_scarce_(is_scarce), cap_(cap) {}
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache();  // gives back the kept memory; blocks in use stay valid, but must not be freed any more

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
  FreeRanges kept_;   // free ranges that hold memory
  FreeRanges clean_;  // free ranges of addresses without memory
  std::unordered_map<void*, std::size_t> in_use_;
  std::size_t cap_;
  std::size_t least_kept_ = 0;  // since the last time that idle memory was given back
  BlockCacheStats stats_;       // without the numbers that the members above hold
  Clock::time_point next_look_;
  Clock::time_point next_trim_;
};

}  // namespace lockstep
