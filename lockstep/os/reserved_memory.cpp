#include "lockstep/os/reserved_memory.h"

#include <sys/mman.h>

#include <new>

#include "lockstep/base/round_up.h"

namespace lockstep {

ReservedMemory::ReservedMemory(std::size_t bytes) : bytes_(round_up(bytes > 0 ? bytes : 1, PAGE)) {
  void* const memory = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(memory);
}

ReservedMemory::~ReservedMemory() { munmap(data_, bytes_); }

void ReservedMemory::admit(std::size_t begin, std::size_t end) {
  if (end > begin && mprotect(data_ + begin, end - begin, PROT_READ | PROT_WRITE) != 0)
    throw std::bad_alloc();
}

void ReservedMemory::discard(std::size_t begin, std::size_t end) {
  if (end <= begin) return;
  madvise(data_ + begin, end - begin, MADV_DONTNEED);
  if (mprotect(data_ + begin, end - begin, PROT_NONE) != 0) throw std::bad_alloc();
}

}  // namespace lockstep
