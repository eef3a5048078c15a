#include "lockstep/os/file_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep {
namespace {

constexpr std::size_t LINE = 64;
// The smallest file. Several small allocations share one.
constexpr std::size_t BLOCK = std::size_t{64} << 20U;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

Fd nameless_file(const std::string& folder) {
  Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid() || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = folder + "/.lockstep-memory-XXXXXX";  // used if the file system has no nameless files
  file.reset(::mkostemp(path.data(), O_CLOEXEC));
  if (file.valid()) ::unlink(path.c_str());
  return file;
}

}  // namespace

FileMemory::~FileMemory() {
  for (const Block& block : blocks_) ::munmap(block.data, block.bytes);
}

void FileMemory::add_block(std::size_t bytes) {
  Block block;
  block.bytes = round_up(std::max(bytes, BLOCK), page_size());
  block.file = nameless_file(folder_);
  if (!block.file.valid()) throw SystemError(str("cannot make a file in ", in_quotes(folder_)), errno);
  int failed = 0;
  do {
    const NoFileSizeSignal quiet;
    failed = ::posix_fallocate(block.file.get(), 0, static_cast<off_t>(block.bytes));
  } while (failed == EINTR);
  if (failed != 0)
    throw SystemError(str("cannot reserve ", block.bytes, " bytes in ", in_quotes(folder_)), failed);
  void* const data = ::mmap(nullptr, block.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, block.file.get(), 0);
  if (data == MAP_FAILED)
    throw SystemError(str("cannot map ", block.bytes, " bytes of a file in ", in_quotes(folder_)), errno);
  block.data = static_cast<std::byte*>(data);
  blocks_.push_back(std::move(block));
}

void* FileMemory::allocate(std::size_t bytes) {
  const std::size_t size = round_up(std::max(bytes, std::size_t{1}), LINE);
  if (blocks_.empty() || blocks_.back().bytes - blocks_.back().used < size) add_block(size);
  Block& block = blocks_.back();
  return block.data + std::exchange(block.used, block.used + size);
}

std::size_t FileMemory::bytes() const {
  std::size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.bytes;
  return bytes;
}

// Rounds outward to whole pages.
std::vector<FileMemory::Pages> FileMemory::pages_of(const std::vector<MemoryRange>& ranges) const {
  std::vector<Pages> found;
  for (const MemoryRange& range : ranges) {
    const auto* const data = static_cast<const std::byte*>(range.data);
    for (const Block& block : blocks_) {
      const std::less<> before;
      if (before(data, block.data) || !before(data, block.data + block.bytes)) continue;
      const auto offset = static_cast<std::size_t>(data - block.data);
      const std::size_t begin = offset / page_size() * page_size();
      const std::size_t end = std::min(round_up(offset + range.bytes, page_size()), block.bytes);
      found.push_back({&block, begin, end - begin});
    }
  }
  return found;
}

// This is only advice: if it fails, the next access is slower.
void FileMemory::will_need(const std::vector<MemoryRange>& ranges) {
  for (const Pages& pages : pages_of(ranges))
    ::madvise(pages.block->data + pages.begin, pages.bytes, MADV_WILLNEED);
}

// Some file systems do not support the call (ENOSYS, ESPIPE). The kernel then writes the pages back later.
void FileMemory::write_back(const Pages& pages, unsigned how) const {
  if (::sync_file_range(pages.block->file.get(), static_cast<off_t>(pages.begin),
                        static_cast<off_t>(pages.bytes), how) == 0 ||
      errno == ENOSYS || errno == ESPIPE)
    return;
  throw SystemError(str("cannot write memory back to a file in ", in_quotes(folder_)), errno);
}

// Starts to write `ranges` and waits for the previous call's ranges, which are on the disk or nearly so. Only
// then are these dropped, because the kernel keeps dirty pages.
void FileMemory::is_done(const std::vector<MemoryRange>& ranges) {
  const std::vector<Pages> pages = pages_of(ranges);
  for (const Pages& one : pages) write_back(one, SYNC_FILE_RANGE_WRITE);
  for (const Pages& one : std::exchange(leaving_, pages)) {
    write_back(one, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    ::madvise(one.block->data + one.begin, one.bytes, MADV_DONTNEED);
    ::posix_fadvise(one.block->file.get(), static_cast<off_t>(one.begin), static_cast<off_t>(one.bytes),
                    POSIX_FADV_DONTNEED);
  }
}

}  // namespace lockstep
