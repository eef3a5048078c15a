#include "lockstep/os/foreign_memory.h"
#include "lockstep/os/proc_folder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"

namespace lockstep {
namespace {

// Opens the file again by its path: a read-only descriptor of this process.
Fd open_for_reading(const std::string& path) { return Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)); }

}  // namespace

std::vector<Fd> open_memory_files(pid_t pid, std::string_view name) {
  const std::string target = str("/memfd:", name);
  std::vector<Fd> files;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  const std::filesystem::directory_iterator folder(proc_folder(pid) + "/fd", error);
  if (error) return files;
  for (auto entry = begin(folder); entry != end(folder); entry.increment(error)) {
    if (error) break;
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(entry->path(), gone).string();
    if (gone || (link != target && link != target + " (deleted)")) continue;
    // A process that holds the file read-only is a reader, like this one.
    using std::filesystem::perms;
    if ((entry->symlink_status(gone).permissions() & perms::owner_write) == perms::none || gone) continue;
    Fd file = open_for_reading(entry->path().string());
    struct stat status = {};
    if (!file.valid() || fstat(file.get(), &status) != 0) continue;
    if (seen.emplace(status.st_dev, status.st_ino).second) files.push_back(std::move(file));
  }
  return files;
}

ForeignMemory::ForeignMemory(int fd) {
  struct stat status = {};
  if (fstat(fd, &status) != 0 || status.st_size <= 0)
    throw SystemError("another process's memory: cannot inspect it", errno);
  if (kernel_has(KernelFeature::SEALS)) {
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
      throw SystemError("another process's memory: it is not sealed against shrinking; refused", EPERM);
  }
  size_ = static_cast<std::size_t>(status.st_size);
  void* address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw SystemError("another process's memory: cannot map it", errno);
  madvise(address, size_, MADV_DONTFORK);
  data_ = static_cast<const std::byte*>(address);
}

ForeignMemory::~ForeignMemory() { munmap(const_cast<std::byte*>(data_), size_); }

}  // namespace lockstep
