#include "lockstep/os/block_cache.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace lockstep {
namespace {

constexpr std::size_t ALIGNMENT = 64;
constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20U;
constexpr unsigned CLASSES_PER_DOUBLING_BITS = 3;

// In front of every block; its size decides who the memory belongs to.
struct alignas(ALIGNMENT) Head {
  std::size_t size;  // class; 0: malloc's
};

Head* head_of(void* block) { return static_cast<Head*>(block) - 1; }

void unmap(void* block, std::size_t size) { munmap(head_of(block), size + sizeof(Head)); }

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
    if (posix_memalign(&memory, ALIGNMENT, size + sizeof(Head)) != 0) throw std::bad_alloc();
    return new (memory) Head{0} + 1;
  }
  const std::lock_guard lock(mutex_);
  void* block = take(size);
  if (block == nullptr) block = map(size);
  stats_.in_use_bytes += size;
  return block;
}

void* BlockCache::take(std::size_t size) {
  const auto blocks = kept_.find(size);
  if (blocks == kept_.end() || blocks->second.empty()) return nullptr;
  void* block = blocks->second.back().block;
  blocks->second.pop_back();
  stats_.cached_bytes -= size;
  ++stats_.reused;
  return block;
}

void* BlockCache::map(std::size_t size) {
  const auto attempt = [&] {
    return mmap(nullptr, size + sizeof(Head), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  void* memory = attempt();
  if (memory == MAP_FAILED) {
    give_back_down_to(0);
    memory = attempt();
  }
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (size >= HUGE_PAGE) madvise(memory, size, MADV_HUGEPAGE);
  ++stats_.mapped;
  return new (memory) Head{size} + 1;
}

void BlockCache::free(void* block, Clock::time_point now) {
  if (block == nullptr) return;
  const std::size_t size = head_of(block)->size;
  if (size == 0) {
    std::free(head_of(block));
    return;
  }
  const std::lock_guard lock(mutex_);
  stats_.in_use_bytes -= size;
  if (size > cap_) {
    unmap(block, size);
    ++stats_.returned;
    return;
  }
  give_back_down_to(cap_ - size);
  kept_[size].push_back({block, now});
  stats_.cached_bytes += size;
  if (now >= next_look_) give_back_idle(now);
}

void BlockCache::release(std::size_t size, const Kept& kept) {
  unmap(kept.block, size);
  stats_.cached_bytes -= size;
  ++stats_.returned;
}

// The largest first: they bring most for one call to the kernel.
void BlockCache::give_back_down_to(std::size_t bytes) {
  for (auto blocks = kept_.rbegin(); blocks != kept_.rend() && stats_.cached_bytes > bytes; ++blocks) {
    while (!blocks->second.empty() && stats_.cached_bytes > bytes) {
      release(blocks->first, blocks->second.front());
      blocks->second.erase(blocks->second.begin());
    }
  }
}

void BlockCache::give_back_idle(Clock::time_point now) {
  for (auto& [size, blocks] : kept_) {
    auto end = blocks.begin();  // the longest unused come first
    while (end != blocks.end() && now - end->since >= IDLE_TIME) release(size, *end++);
    blocks.erase(blocks.begin(), end);
  }
  next_look_ = now + IDLE_TIME / 4;
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
