// _FORTIFY_SOURCE has definitions of its own of some of these.
#undef _FORTIFY_SOURCE
#include "tests/checkpoints/file_faults.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>

namespace {

std::string folder_;
std::atomic<int> calls_left{0};
std::atomic<bool> reached{false};
FileFault fault_ = FileFault::NONE;
bool may_exchange = true;
int record_ = -1;  // of record_file_calls(); appended to by several processes

std::string path_of(int file) {
  std::array<char, 4096> path = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return ::readlink(link.c_str(), path.data(), path.size() - 1) > 0 ? path.data() : "";
}

bool is_counted(const char* path) {
  return fault_ != FileFault::NONE && std::string(path).starts_with(folder_);
}

bool is_counted(int file) { return fault_ != FileFault::NONE && is_counted(path_of(file).c_str()); }

// One line, in one write, so that lines of several processes stay whole and in order.
void record(const std::string& call, const std::string& path, const std::string& to = "") {
  if (record_ < 0 || !path.starts_with(folder_)) return;
  const std::string line = call + " " + path + (to.empty() ? "" : " " + to) + "\n";
  ::syscall(SYS_write, record_, line.data(), line.size());
}

// Whether this is the call; then errno is set, or the process is gone.
bool is_the_one() {
  if (calls_left.fetch_sub(1) != 1) return false;
  reached = true;
  if (fault_ == FileFault::KILL) ::raise(SIGKILL);
  errno = fault_ == FileFault::NO_SPACE ? ENOSPC : fault_ == FileFault::IO_ERROR ? EIO : EINTR;
  return true;
}

template <typename Where> bool fails(const Where& where) {
  return is_counted(where) && is_the_one() && fault_ != FileFault::SHORT_WRITE;
}

}  // namespace

void deny_exchange() { may_exchange = false; }

void arm_file_fault(const std::string& folder, int call, FileFault fault) {
  folder_ = folder;
  fault_ = fault;
  calls_left = call;
  reached = false;
}

bool file_fault_was_reached() { return reached; }

void record_file_calls(const std::string& folder, const std::string& file) {
  folder_ = folder;
  record_ = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

// NOLINTBEGIN: libc's names and types
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if ((flags & (O_WRONLY | O_RDWR)) != 0 && fails(path)) return -1;
  if ((flags & O_CREAT) != 0 && ::syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0) record("create", path);
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return open(path, flags, mode);
}

ssize_t write(int file, const void* bytes, size_t count) {
  if (is_counted(file) && is_the_one()) {
    if (fault_ != FileFault::SHORT_WRITE) return -1;
    count = std::max<size_t>(1, count / 2);
  }
  const ssize_t written = ::syscall(SYS_write, file, bytes, count);
  if (record_ >= 0) record("write", path_of(file));
  return written;
}

int fsync(int file) {
  if (fails(file)) return -1;
  const int result = static_cast<int>(::syscall(SYS_fsync, file));
  if (record_ >= 0) record("fsync", path_of(file));
  return result;
}
int ftruncate(int file, off_t size) {
  return fails(file) ? -1 : static_cast<int>(::syscall(SYS_ftruncate, file, size));
}
int flock(int file, int operation) {
  return fails(file) ? -1 : static_cast<int>(::syscall(SYS_flock, file, operation));
}
int mkdir(const char* path, mode_t mode) {
  if (fails(path) || ::syscall(SYS_mkdir, path, mode) != 0) return -1;
  record("create", path);
  return 0;
}
int rename(const char* from, const char* to) {
  record("rename", from, to);
  return fails(from) ? -1 : static_cast<int>(::syscall(SYS_rename, from, to));
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (!may_exchange) {
    errno = EINVAL;
    return -1;
  }
  record("exchange", from, to);
  return fails(from) ? -1
                     : static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
int unlink(const char* path) {
  record("unlink", path);
  return fails(path) ? -1 : static_cast<int>(::syscall(SYS_unlink, path));
}
int rmdir(const char* path) {
  record("unlink", path);
  return fails(path) ? -1 : static_cast<int>(::syscall(SYS_rmdir, path));
}

}  // extern "C"
// NOLINTEND
