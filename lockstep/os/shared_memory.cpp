#include "lockstep/os/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"

namespace lockstep {
namespace {

constexpr unsigned NOEXEC_SEAL = 8U;  // MFD_NOEXEC_SEAL, Linux 6.3
constexpr int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Fd make_memfd() {
  Fd fd(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) fd = Fd(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) throw SystemError("shared memory: memfd_create failed", errno);
  return fd;
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t bytes) {
  Fd fd = make_memfd();
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw SystemError(str("shared memory: cannot size a segment of ", bytes, " bytes"), errno);
  }
  if (kernel_has(KernelFeature::SEALS) && fcntl(fd.get(), F_ADD_SEALS, SEALS) != 0) {
    throw SystemError("shared memory: cannot seal the segment", errno);
  }
  return map(std::move(fd), bytes);
}

std::shared_ptr<SharedMemory> SharedMemory::adopt(Fd fd) {
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0)
    throw SystemError("shared memory: cannot inspect a received segment", errno);
  if (kernel_has(KernelFeature::SEALS)) {
    const int seals = fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS) {
      throw SystemError("shared memory: a received segment is not sealed against resizing; refused", EPERM);
    }
  }
  return map(std::move(fd), static_cast<std::size_t>(status.st_size));
}

std::shared_ptr<SharedMemory> SharedMemory::map(Fd fd, std::size_t size) {
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (address == MAP_FAILED) throw SystemError(str("shared memory: cannot map ", size, " bytes"), errno);
  madvise(address, size, MADV_DONTFORK);
  madvise(address, size, MADV_DONTDUMP);
  madvise(address, size, MADV_HUGEPAGE);
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(fd), static_cast<std::byte*>(address), size));
}

SharedMemory::~SharedMemory() { munmap(data_, size_); }

void SharedMemory::reserve(std::size_t offset, std::size_t bytes) {
  if (offset > size_ || bytes > size_ - offset) {
    throw SystemError(
        str("shared memory: ", bytes, " bytes at ", offset, " exceed the segment of ", size_, " bytes"),
        ENOMEM);
  }
  int result = 0;
  do {
    result = fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    throw SystemError(str("shared memory: cannot reserve ", bytes,
                          " bytes (free memory or the cgroup's limit is too small)"),
                      errno);
  }
}

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace lockstep
