#include "lockstep/tensor/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/shared_memory.h"
#include "lockstep/tensor/lent_places.h"

namespace lockstep {
namespace {

constexpr std::size_t SHARE_OF_MEMORY = 4;
constexpr std::uint8_t HIGHEST_PRIORITY = 255;

void before_fork();
void after_fork();

// Outlives static destructors, because tensors do.
BlockCache& cache() {
  static BlockCache* const instance = [] {
    const JobEnvironment job = job_environment();
    const bool is_known = job.local_world_size != JobEnvironment::UNKNOWN;
    const auto ranks = static_cast<std::size_t>(is_known ? job.local_world_size : job.world_size);
    const std::size_t usable = std::min(physical_memory() / ranks, address_space_left() / 2);
    auto* made = new BlockCache(usable / SHARE_OF_MEMORY);
    pthread_atfork(&before_fork, &after_fork, &after_fork);
    return made;
  }();
  return *instance;
}

void before_fork() {
  lent_places_before_fork();
  cache().before_fork();
}

void after_fork() {
  cache().after_fork();
  lent_places_after_fork();
}

void* make_block(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes < BlockCache::SMALLEST) return cache().allocate(bytes);
  void* block = take_offered_place(bytes);
  if (block == nullptr) block = cache().allocate(bytes);
  note_tensor(bytes, block);
  return block;
}

void delete_block(void* block) {
  if (block == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(block);
  if (!return_lent_place(block)) cache().free(block);
}

// libtorch demands that an allocator with a raw_deleter() uses the data pointer as the context of a DataPtr.
struct CachingAllocator : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* block = make_block(bytes);
    if (block != nullptr) c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &delete_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

CachingAllocator& allocator() {
  static auto* const instance = new CachingAllocator;
  return *instance;
}

bool is_switched_off() {
  const auto value = env("LOCKSTEP_ALLOCATOR");
  if (value && *value != "off" && *value != "caching") {
    throw InvalidArgument("environment: LOCKSTEP_ALLOCATOR=\"" + printable(*value) +
                          "\" must be caching (the default) or off");
  }
  return value && *value == "off";
}

}  // namespace

bool install_caching_allocator() {
  static std::once_flag once;
  if (is_switched_off()) return false;
  std::call_once(once, [] {
    // Made now. Otherwise a child that is forked while another thread makes the cache would wait for that
    // thread for ever.
    cache();
    c10::profiledCPUMemoryReporter();
    c10::SetAllocator(c10::DeviceType::CPU, &allocator(), HIGHEST_PRIORITY);
  });
  return is_caching_allocator_installed();
}

bool is_caching_allocator_installed() { return c10::GetAllocator(c10::DeviceType::CPU) == &allocator(); }

BlockCacheStats allocator_stats() { return cache().stats(); }
void empty_cache() { cache().empty(); }
void set_allocator_cap(std::size_t bytes) { cache().set_cap(bytes); }

}  // namespace lockstep
