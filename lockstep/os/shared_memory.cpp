#include "lockstep/os/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"
#include "lockstep/os/huge_page.h"
#include "lockstep/os/kernel_features.h"

namespace lockstep {
namespace {

constexpr unsigned NOEXEC_SEAL = 8U;  // MFD_NOEXEC_SEAL, Linux 6.3
constexpr int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr std::size_t SMALLEST_IN_HUGE_PAGES = 2 * HUGE_PAGE;
constexpr int COLLAPSE = 25;  // MADV_COLLAPSE, Linux 6.1

Fd make_memfd(const char* name) {
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) fd = Fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) throw SystemError("shared memory: memfd_create failed", errno);
  return fd;
}

// Reserves address space that begins at a multiple of HUGE_PAGE, as the page table needs for a huge page of a
// file. MAP_FAILED if there is none.
void* aligned_addresses(std::size_t size) {
  void* space =
      mmap(nullptr, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return space;
  auto* const start = static_cast<std::byte*>(space);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(start) % HUGE_PAGE;
  if (before > 0) munmap(start, before);
  const std::size_t mapped = (size + 4095) / 4096 * 4096;
  munmap(start + before + mapped, HUGE_PAGE - before);
  return start + before;
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t bytes) { return create(bytes, Options()); }

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t bytes, const Options& options) {
  if (!kernel_has(KernelFeature::MEMFD)) {
    if (options.need_not_be_shared) return map(Fd(), bytes, options.huge_pages);
    throw SystemError(
        "shared memory: memfd_create is forbidden here (a container's filter?); backend tcp "
        "(LOCKSTEP_BACKEND=tcp) does not need it",
        EPERM);
  }
  if (bytes > largest_file()) {
    if (options.need_not_be_shared) return map(Fd(), bytes, options.huge_pages);
    throw SystemError(str("shared memory: a segment of ", bytes, " bytes is larger than a file may be here, ",
                          largest_file(), " bytes (ulimit -f)"),
                      EFBIG);
  }
  const NoFileSizeSignal quiet;
  Fd fd = make_memfd(options.name);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw SystemError(str("shared memory: cannot size a segment of ", bytes, " bytes"), errno);
  }
  if (kernel_has(KernelFeature::SEALS) && fcntl(fd.get(), F_ADD_SEALS, SEALS) != 0) {
    throw SystemError("shared memory: cannot seal the segment", errno);
  }
  return map(std::move(fd), bytes, options.huge_pages);
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
  auto memory = map(std::move(fd), static_cast<std::size_t>(status.st_size), /*huge_pages=*/true);
  memory->fd_.reset();
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::map(Fd fd, std::size_t size, bool huge_pages) {
  void* address = aligned_addresses(size);
  if (address != MAP_FAILED) {
    const int anonymous = fd.valid() ? 0 : MAP_ANONYMOUS;
    address = mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED | anonymous,
                   fd.get(), 0);
  }
  if (address == MAP_FAILED) {
    const int error = errno;
    const std::size_t limit = address_space_limit();
    throw SystemError(str("shared memory: cannot map ", size, " bytes",
                          limit == NO_LIMIT ? ""
                                            : str(" (the address space of a process is limited to ", limit,
                                                  " bytes here, ulimit -v)")),
                      error);
  }
  madvise(address, size, MADV_DONTFORK);
  madvise(address, size, MADV_DONTDUMP);
  if (huge_pages) madvise(address, size, MADV_HUGEPAGE);
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(fd), static_cast<std::byte*>(address), size, huge_pages));
}

SharedMemory::~SharedMemory() { munmap(data_, size_); }

void SharedMemory::reserve(std::size_t offset, std::size_t bytes) {
  if (offset > size_ || bytes > size_ - offset) {
    throw SystemError(
        str("shared memory: ", bytes, " bytes at ", offset, " exceed the segment of ", size_, " bytes"),
        ENOMEM);
  }
  if (!fd_.valid()) return;  // anonymous pages are allocated by the first write
  const NoFileSizeSignal quiet;
  int result = 0;
  do {
    result = fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    throw SystemError(str("shared memory: cannot reserve ", bytes,
                          " bytes (free memory or the cgroup's limit is too small)"),
                      errno);
  }
  // Without this request the kernel uses small pages for shared memory (shmem_enabled is "never" by default).
  // They are slower to write, and each costs a page fault in every process. The request takes time, but only
  // once.
  if (huge_pages_ && bytes >= SMALLEST_IN_HUGE_PAGES) madvise(data_ + offset, bytes, COLLAPSE);
}

std::size_t address_space_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? NO_LIMIT : limit.rlim_cur;
}

std::size_t address_space_left() {
  const int on_stack = 0;  // close to the highest address that a program can have
  const std::size_t whole = std::bit_ceil(reinterpret_cast<std::uintptr_t>(&on_stack));
  const std::size_t limit = std::min(address_space_limit(), whole);
  std::ifstream status("/proc/self/statm");
  std::size_t mapped_pages = 0;
  // Without /proc the mapped size is unknown: half of the limit is a careful guess.
  if (!(status >> mapped_pages)) return limit / 2;
  const std::size_t mapped = mapped_pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return mapped < limit ? limit - mapped : 0;
}

// A line reads "7f1c3a000000-7f1c3a001000 rw-s 00000000 00:01 1033 /memfd:NAME (deleted)".
std::vector<const std::byte*> mapped_memory_files(const std::string& name) {
  const std::string ending = str(" /memfd:", name, " (deleted)");
  std::vector<const std::byte*> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(ending)) continue;
    std::uintptr_t address = 0;
    std::from_chars(line.data(), line.data() + line.size(), address, 16);
    found.push_back(reinterpret_cast<const std::byte*>(address));
  }
  return found;
}

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace lockstep
