#include "lockstep/os/foreign_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"

namespace lockstep {
namespace {

struct ForeignStat {
  ProcessLife life;
  pid_t parent = 0;
};

// "pid (name) state parent ...": the name may hold anything, so fields count from the last ')'.
ForeignStat read_foreign_stat(pid_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return {};
  std::istringstream fields(text.substr(end_of_name + 1));
  ForeignStat stat;
  fields >> stat.life.state >> stat.parent;
  std::string skipped;
  constexpr int BETWEEN = 17;  // the parent is field 4, the start time field 22
  for (int i = 0; i < BETWEEN; ++i) fields >> skipped;
  fields >> stat.life.start_time;
  return fields ? stat : ForeignStat{};
}

// Opened again by its path: a descriptor of our own, read-only.
Fd open_for_reading(const std::string& path) { return Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)); }

}  // namespace

std::vector<Fd> open_memory_files(pid_t pid, std::string_view name) {
  const std::string target = str("/memfd:", name);
  std::vector<Fd> files;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  const std::filesystem::directory_iterator folder(str("/proc/", pid, "/fd"), error);
  if (error) return files;
  for (auto entry = begin(folder); entry != end(folder); entry.increment(error)) {
    if (error) break;
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(entry->path(), gone).string();
    if (gone || (link != target && link != target + " (deleted)")) continue;
    // Who has it for reading only looks at it, as we do.
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

std::vector<ProcessEntry> all_processes() {
  std::vector<ProcessEntry> processes;
  std::error_code error;
  const std::filesystem::directory_iterator folder("/proc", error);
  if (error) return processes;
  for (auto entry = begin(folder); entry != end(folder); entry.increment(error)) {
    if (error) break;
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    const auto [stop, fault] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (fault != std::errc() || stop != name.data() + name.size()) continue;
    processes.push_back({pid, read_foreign_stat(pid).parent});
  }
  return processes;
}

ProcessLife process_life(pid_t pid) { return read_foreign_stat(pid).life; }

}  // namespace lockstep
