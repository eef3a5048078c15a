#include "lockstep/os/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/running_clock.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds NAP{20};

// The holder has written its process id into the file.
std::string holder_of(const Fd& file) {
  std::array<char, 32> text = {};
  const ssize_t got = ::pread(file.get(), text.data(), text.size() - 1, 0);
  return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : "unknown";
}

}  // namespace

FolderLock::FolderLock(const std::string& path, std::chrono::milliseconds patience)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  if (!file_.valid()) throw SystemError(str("cannot open the lock ", in_quotes(path)), errno);
  const auto deadline = RunningClock::now() + patience;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;  // this file system has no locks
    if (RunningClock::now() >= deadline)
      throw SystemError(str("another process (pid ", holder_of(file_), ") holds ", in_quotes(path)), EBUSY);
    nap(NAP);
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(file_.get(), 0) == 0) (void)!::pwrite(file_.get(), pid.data(), pid.size(), 0);
}

}  // namespace lockstep
