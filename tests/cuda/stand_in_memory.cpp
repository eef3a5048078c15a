// Device memory of the stand-in for CUDA: two ranges of addresses of one file, of which the one that tensors
// have may not be touched. Blocks are powers of two.
#include <c10/core/Allocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <vector>

#include "tests/cuda/stand_in.h"
#include "tests/cuda/stand_in_memory.h"

namespace lockstep::cuda_stand_in {
namespace {

constexpr std::size_t CAPACITY = std::size_t{1} << 30;  // bytes of addresses; taken is what is used
constexpr std::size_t SMALLEST = 512;                   // as CUDA's allocator
constexpr int FREED = 0xff;                             // NaN in every floating type

char* reserve() {
  void* const addresses =
      mmap(nullptr, CAPACITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  return static_cast<char*>(addresses);
}

struct Block {
  std::size_t bytes = 0;
  std::vector<c10::Stream> streams;  // on which it may be in use when it is freed
};

class Memory {
 public:
  Memory() : device_(reserve()), host_(reserve()) {}

  DeviceRange range() const { return {device_, device_ + CAPACITY, host_ - device_}; }

  void* take(std::size_t bytes, const c10::Stream& stream) {
    const std::size_t size = std::bit_ceil(std::max(bytes, SMALLEST));
    const std::lock_guard lock(mutex_);
    if (!is_mapped_) map();
    char* const address = find(size);
    blocks_[address] = {size, {stream}};
    return address;
  }

  void also_used_on(void* address, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    blocks_.at(address).streams.push_back(stream);
  }

  void free(void* address) {
    std::unique_lock lock(mutex_);
    const auto found = blocks_.find(address);
    const Block block = std::move(found->second);
    blocks_.erase(found);
    lock.unlock();
    when_done(block.streams, [this, address, bytes = block.bytes] {
      std::memset(memory_of(address), FREED, bytes);
      const std::lock_guard again(mutex_);
      free_[bytes].push_back(static_cast<char*>(address));
    });
  }

 private:
  // In the process that uses it, as ranks that are forks of one have each their own.
  void map() {
    const int file = memfd_create("cuda-stand-in", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, CAPACITY) != 0 ||
        mmap(host_, CAPACITY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(), "memory of the stand-in for CUDA");
    }
    close(file);
    is_mapped_ = true;
  }

  char* find(std::size_t size) {
    auto& free = free_[size];
    if (!free.empty()) {
      char* const address = free.back();
      free.pop_back();
      return address;
    }
    TORCH_CHECK_WITH(OutOfMemoryError, used_ + size <= CAPACITY, "stand-in for CUDA: out of memory");
    char* const address = device_ + used_;
    used_ += size;
    std::memset(memory_of(address), FREED, size);
    return address;
  }

  char* const device_;
  char* const host_;
  std::mutex mutex_;
  bool is_mapped_ = false;
  std::size_t used_ = 0;
  std::map<std::size_t, std::vector<char*>> free_;
  std::map<void*, Block> blocks_;
};

Memory& memory() {
  static auto* const instance = new Memory;  // streams outlive main
  return *instance;
}

void free_block(void* address) { memory().free(address); }

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::kCUDA, current_device());
    void* const address = bytes == 0 ? nullptr : memory().take(bytes, current_stream(device.index()));
    return {address, address, address == nullptr ? nullptr : &free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    wait_for_current_stream();
    std::memcpy(memory_of(to), memory_of(from), bytes);
  }
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const address = std::malloc(std::max<std::size_t>(bytes, 1));
    TORCH_CHECK_WITH(OutOfMemoryError, address != nullptr, "stand-in for CUDA: out of pinned memory");
    const std::lock_guard lock(pinned().mutex);
    pinned().blocks[address] = bytes;
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  static bool has(const void* address) {
    const std::lock_guard lock(pinned().mutex);
    auto after = pinned().blocks.upper_bound(address);
    if (after == pinned().blocks.begin()) return false;
    const auto& [begin, bytes] = *--after;
    return static_cast<const char*>(address) <
           static_cast<const char*>(begin) + std::max<std::size_t>(bytes, 1);
  }

 private:
  struct Pinned {
    std::mutex mutex;
    std::map<const void*, std::size_t> blocks;
  };
  static Pinned& pinned() {
    static auto* const instance = new Pinned;
    return *instance;
  }
  static void release(void* address) {
    const std::lock_guard lock(pinned().mutex);
    pinned().blocks.erase(address);
    std::free(address);  // NOLINT: of malloc
  }
};

DeviceAllocator allocator;
REGISTER_ALLOCATOR(c10::kCUDA, &allocator);

}  // namespace

c10::Allocator& pinned_memory() {
  static auto* const instance = new PinnedAllocator;
  return *instance;
}

bool is_pinned(const void* address) { return PinnedAllocator::has(address); }

DeviceRange device_range() { return memory().range(); }

char* memory_of(const void* address) {
  const DeviceRange range = memory().range();
  const char* const at = static_cast<const char*>(address);
  const bool is_device = at >= range.begin && at < range.end;
  return const_cast<char*>(is_device ? at + range.to_memory : at);  // NOLINT: an address of any kind
}

void record_use(const c10::DataPtr& data, const c10::Stream& stream) {
  if (data.get() != nullptr) memory().also_used_on(data.get(), stream);
}

}  // namespace lockstep::cuda_stand_in
