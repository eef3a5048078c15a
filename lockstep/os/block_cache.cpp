#include "lockstep/os/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "lockstep/base/round_up.h"
#include "lockstep/os/huge_page.h"

namespace lockstep {
namespace {

constexpr std::size_t BLOCK_ALIGNMENT = 64;
constexpr std::size_t PAGE = std::size_t{4} << 10U;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
std::uintptr_t address_of(const void* block) { return reinterpret_cast<std::uintptr_t>(block); }

// Maps fresh address space that may use huge pages. `bytes` is a multiple of HUGE_PAGE. Returns 0 if the
// kernel refuses.
std::uintptr_t map_huge(std::size_t bytes) {
  constexpr int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  const std::uintptr_t start = address_of(memory);
  const std::size_t before = -start % HUGE_PAGE;
  if (before > 0) munmap(memory, before);
  munmap(pointer(start + before + bytes), HUGE_PAGE - before);
  madvise(pointer(start + before), bytes, MADV_HUGEPAGE);
  return start + before;
}

}  // namespace

BlockCache::~BlockCache() { empty(); }

void* BlockCache::allocate(std::size_t bytes) {
  if (bytes < SMALLEST) {
    void* memory = nullptr;
    if (posix_memalign(&memory, BLOCK_ALIGNMENT, bytes) != 0) throw std::bad_alloc();
    return memory;
  }
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const std::size_t size = round_up(bytes, PAGE);
  const std::lock_guard lock(mutex_);
  std::optional<std::uintptr_t> place = kept_.take(size);
  if (place) {
    ++stats_.reused;
  } else {
    place = take_fresh(size);
    ++stats_.mapped;
  }
  least_kept_ = std::min(least_kept_, kept_.total_bytes());
  in_use_.emplace(pointer(*place), size);
  stats_.in_use_bytes += size;
  return pointer(*place);
}

// Address space that is mapped already comes first, then a new region. If the kernel refuses that, all kept
// memory goes back, and both are tried once more.
std::uintptr_t BlockCache::take_fresh(std::size_t bytes) {
  std::optional<std::uintptr_t> place = take_clean(bytes);
  if (!place && map_region(bytes)) place = take_clean(bytes);
  if (!place) {
    give_back_down_to(0);
    place = take_clean(bytes);
    if (!place && map_region(bytes)) place = take_clean(bytes);
  }
  if (!place) throw std::bad_alloc();
  return *place;
}

// A clean range may be joined with the kept range that ends where it begins. kept_.take() found that range
// too short for the allocation.
std::optional<std::uintptr_t> BlockCache::take_clean(std::size_t bytes) {
  for (const auto& [begin, length] : clean_.all()) {
    const AddressRange clean{begin, length};
    const AddressRange before = kept_.ending_at(begin);
    if (before.bytes + clean.bytes < bytes) continue;
    if (before.bytes > 0) kept_.erase(before);
    clean_.erase(clean);
    clean_.insert({before.begin + bytes, clean.end() - before.begin - bytes});
    return before.begin;
  }
  return std::nullopt;
}

// The last page of a region is never used. So its free range cannot merge with a region that begins behind
// it.
bool BlockCache::map_region(std::size_t bytes) {
  const std::size_t needed = round_up(bytes + PAGE, HUGE_PAGE);
  std::size_t size = std::max(REGION, needed);
  std::uintptr_t begin = map_huge(size);
  if (begin == 0 && size > needed) begin = map_huge(size = needed);
  if (begin == 0) return false;
  regions_.emplace(begin, size);
  clean_.insert({begin, size - PAGE});
  return true;
}

void BlockCache::free(void* block, Clock::time_point now) {
  if (address_of(block) % PAGE == 0) {
    const std::lock_guard lock(mutex_);
    const auto found = in_use_.find(block);
    if (found != in_use_.end()) {
      const AddressRange range{address_of(block), found->second};
      in_use_.erase(found);
      return keep(range, now);
    }
  }
  std::free(block);
}

void BlockCache::keep(AddressRange block, Clock::time_point now) {
  stats_.in_use_bytes -= block.bytes;
  kept_.insert(block);
  give_back_down_to(cap_);
  look(now);
}

// The smallest amount that was kept since the last trim was not needed in that time, so it goes back.
void BlockCache::look(Clock::time_point now) {
  if (now >= next_look_) {
    next_look_ = now + IDLE_TIME / 4;
    if (is_scarce_()) give_back_down_to(0);
  }
  if (now >= next_trim_) {
    next_trim_ = now + IDLE_TIME;
    give_back_down_to(kept_.total_bytes() - std::min(least_kept_, kept_.total_bytes()));
    least_kept_ = kept_.total_bytes();
  }
}

// Cuts from the highest range until at most `bytes` are kept. Low addresses stay, because allocations take
// them first.
void BlockCache::give_back_down_to(std::size_t bytes) {
  while (kept_.total_bytes() > bytes) {
    const AddressRange highest = kept_.highest();
    const std::size_t part = std::min(highest.bytes, round_up(kept_.total_bytes() - bytes, PAGE));
    kept_.erase(highest);
    kept_.insert({highest.begin, highest.bytes - part});
    give_back({highest.end() - part, part});
  }
}

// A region of which no block and no kept range is left goes back to the kernel as a whole.
void BlockCache::give_back(AddressRange range) {
  ++stats_.returned;
  madvise(pointer(range.begin), range.bytes, MADV_DONTNEED);
  const AddressRange clean = clean_.insert(range);
  const auto region = regions_.find(clean.begin);
  if (region == regions_.end() || clean.bytes != region->second - PAGE) return;
  munmap(pointer(region->first), region->second);
  clean_.erase(clean);
  regions_.erase(region);
}

void BlockCache::empty() {
  const std::lock_guard lock(mutex_);
  give_back_down_to(0);
}

void BlockCache::set_cap(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  cap_ = bytes;
  give_back_down_to(cap_);
}

BlockCacheStats BlockCache::stats() const {
  const std::lock_guard lock(mutex_);
  BlockCacheStats stats = stats_;
  stats.cached_bytes = kept_.total_bytes();
  stats.cap_bytes = cap_;
  return stats;
}

}  // namespace lockstep
