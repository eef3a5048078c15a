#include "lockstep/os/block_cache.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <new>

namespace lockstep {
namespace {

constexpr std::size_t ALIGNMENT = 64;
constexpr std::size_t PAGE = std::size_t{4} << 10U;  // every size is a multiple of it
constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20U;
constexpr std::size_t REGION = std::size_t{32} << 20U;
constexpr unsigned CLASSES_PER_DOUBLING_BITS = 3;

bool begins_a_page(const void* block) { return reinterpret_cast<std::uintptr_t>(block) % PAGE == 0; }

// Fresh address space in huge pages, where the kernel has some; `bytes` is a multiple of HUGE_PAGE. Null: refused.
std::byte* map_huge(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(memory);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(start) % HUGE_PAGE;
  if (before > 0) munmap(start, before);
  munmap(start + before + bytes, HUGE_PAGE - before);
  madvise(start + before, bytes, MADV_HUGEPAGE);
  return start + before;
}

}  // namespace

std::size_t block_size_class(std::size_t bytes) {
  if (bytes < BlockCache::SMALLEST) return bytes;
  const unsigned doubling = static_cast<unsigned>(std::bit_width(bytes - 1)) - 1;  // 2^doubling < bytes
  const std::size_t step = std::size_t{1} << (doubling - CLASSES_PER_DOUBLING_BITS);
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  return (bytes + step - 1) / step * step;
}

BlockCache::~BlockCache() { empty(); }

void* BlockCache::allocate(std::size_t bytes) {
  const std::size_t size = block_size_class(bytes);
  if (size < SMALLEST) {
    void* memory = nullptr;
    if (posix_memalign(&memory, ALIGNMENT, size) != 0) throw std::bad_alloc();
    return memory;
  }
  const std::lock_guard lock(mutex_);
  void* block = take_kept(size);
  if (block == nullptr) block = take_fresh(size);
  stats_.in_use_bytes += size;
  return block;
}

void* BlockCache::take_kept(std::size_t size) {
  auto& kept = classes_[size].kept;
  if (kept.empty()) return nullptr;
  void* block = kept.back().block;
  kept.pop_back();
  stats_.cached_bytes -= size;
  ++stats_.reused;
  return block;
}

void* BlockCache::take_fresh(std::size_t size) {
  const auto attempt = [&]() -> void* { return size < OWN_MAPPING ? carve(size) : map_huge(size); };
  void* block = attempt();
  if (block == nullptr) {
    give_back_down_to(0);
    block = attempt();
  }
  if (block == nullptr) throw std::bad_alloc();
  sizes_[block] = size;
  ++stats_.mapped;
  return block;
}

void* BlockCache::carve(std::size_t size) {
  auto& empty = classes_[size].empty;
  if (!empty.empty()) {
    void* place = empty.back();
    empty.pop_back();
    return place;
  }
  if (region_bytes_ < size) {  // what is left has no memory yet but for a part of a huge page
    std::byte* const fresh = map_huge(REGION);
    if (fresh == nullptr) return nullptr;
    region_ = fresh;
    region_bytes_ = REGION;
  }
  void* place = region_;
  region_ += size;
  region_bytes_ -= size;
  return place;
}

void BlockCache::free(void* block, Clock::time_point now) {
  if (begins_a_page(block)) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(block);
    if (found != sizes_.end()) return keep(block, found->second, now);
  }
  std::free(block);
}

void BlockCache::keep(void* block, std::size_t size, Clock::time_point now) {
  stats_.in_use_bytes -= size;
  if (size > cap_) return give_back(size, block);
  give_back_down_to(cap_ - size);
  classes_[size].kept.push_back({block, now});
  stats_.cached_bytes += size;
  if (now >= next_look_) look(now);
}

void BlockCache::look(Clock::time_point now) {
  next_look_ = now + IDLE_TIME / 4;
  give_back_idle(now);
  if (is_scarce_()) give_back_down_to(0);
}

void BlockCache::give_back(std::size_t size, void* block) {
  ++stats_.returned;
  if (size < OWN_MAPPING) {
    madvise(block, size, MADV_DONTNEED);
    classes_[size].empty.push_back(block);
  } else {
    munmap(block, size);
    sizes_.erase(block);
  }
}

// The largest first: they bring most for one call to the kernel.
void BlockCache::give_back_down_to(std::size_t bytes) {
  for (auto of_size = classes_.rbegin(); of_size != classes_.rend() && stats_.cached_bytes > bytes;
       ++of_size) {
    auto& [size, blocks] = *of_size;
    auto end = blocks.kept.begin();  // the longest unused come first
    for (; end != blocks.kept.end() && stats_.cached_bytes > bytes; ++end) {
      stats_.cached_bytes -= size;
      give_back(size, end->block);
    }
    blocks.kept.erase(blocks.kept.begin(), end);
  }
}

void BlockCache::give_back_idle(Clock::time_point now) {
  for (auto& [size, blocks] : classes_) {
    auto end = blocks.kept.begin();
    for (; end != blocks.kept.end() && now - end->since >= IDLE_TIME; ++end) {
      stats_.cached_bytes -= size;
      give_back(size, end->block);
    }
    blocks.kept.erase(blocks.kept.begin(), end);
  }
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
  stats.cap_bytes = cap_;
  return stats;
}

}  // namespace lockstep
