#include "lockstep/os/reserved_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

#include "lockstep/base/round_up.h"

namespace lockstep {
namespace {

void protect(std::byte* data, std::size_t begin, std::size_t end, int protection) {
  if (end > begin && mprotect(data + begin, end - begin, protection) != 0) throw std::bad_alloc();
}

}  // namespace

ReservedMemory::ReservedMemory(std::size_t bytes) : bytes_(round_up(bytes > 0 ? bytes : 1, PAGE)) {
  void* const memory = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(memory);
}

ReservedMemory::ReservedMemory(std::shared_ptr<void> common, std::size_t bytes)
    : bytes_(round_up(bytes > 0 ? bytes : 1, PAGE)), common_(std::move(common)) {
  auto* const begin = static_cast<std::byte*>(common_.get());
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  data_ = begin + (round_up(address, PAGE) - address);
  hide(0, bytes_);
}

// Common memory goes back as it came: others will use it.
ReservedMemory::~ReservedMemory() {
  if (common_ == nullptr) {
    munmap(data_, bytes_);
  } else if (is_replaced_) {
    new std::shared_ptr<void>(std::move(common_));  // NOLINT: kept as long as the process
  } else {
    mprotect(data_, bytes_, PROT_READ | PROT_WRITE);
  }
}

void ReservedMemory::admit(std::size_t begin, std::size_t end) {
  protect(data_, begin, end, PROT_READ | PROT_WRITE);
}

void ReservedMemory::hide(std::size_t begin, std::size_t end) { protect(data_, begin, end, PROT_NONE); }

// The kernel removes pages of common memory only through a mapping that may be written to.
void ReservedMemory::discard(std::size_t begin, std::size_t end) {
  if (end <= begin) return;
  if (common_ != nullptr) admit(begin, end);
  madvise(data_ + begin, end - begin, common_ != nullptr ? MADV_REMOVE : MADV_DONTNEED);
  hide(begin, end);
}

void ReservedMemory::replace(std::size_t begin, std::size_t end) {
  if (end <= begin) return;
  is_replaced_ = true;
  if (mmap(data_ + begin, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
           0) == MAP_FAILED)
    throw std::bad_alloc();
}

}  // namespace lockstep
