#include "lockstep/os/process_handle.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"

namespace lockstep {
namespace {

struct Stat {
  char state = '?';
  std::string start_time;
};

// /proc/PID/stat: "pid (name) state ppid ...", the name may hold anything, so fields count from the last ')'.
Stat read_stat(pid_t pid) {
  const Fd file(open(str("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  std::array<char, 1024> buffer = {};
  const ssize_t length = read(file.get(), buffer.data(), buffer.size() - 1);
  if (length <= 0) return {};
  const std::string text(buffer.data(), static_cast<std::size_t>(length));
  std::size_t at = text.rfind(')');
  if (at == std::string::npos || at + 2 >= text.size()) return {};
  Stat stat;
  stat.state = text[at + 2];
  constexpr int FIELDS_BEFORE_START_TIME = 20;  // field 22; the state is field 3
  for (int field = 0; field < FIELDS_BEFORE_START_TIME && at != std::string::npos; ++field)
    at = text.find(' ', at + 1);
  if (at != std::string::npos) stat.start_time = text.substr(at + 1, text.find(' ', at + 1) - at - 1);
  return stat;
}

}  // namespace

ProcessHandle::ProcessHandle(pid_t pid) : pid_(pid) {
  if (kernel_has(KernelFeature::PIDFD)) {
    pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (pidfd_.valid()) fcntl(pidfd_.get(), F_SETFD, FD_CLOEXEC);
  } else {
    start_time_ = read_stat(pid).start_time;
  }
}

bool ProcessHandle::alive() const {
  if (pidfd_.valid()) {
    pollfd entry = {pidfd_.get(), POLLIN, 0};
    return poll(&entry, 1, 0) == 0 || errno == EINTR;
  }
  if (kernel_has(KernelFeature::PIDFD)) return false;  // it was gone when the handle was opened
  const Stat stat = read_stat(pid_);
  return stat.state != '?' && stat.state != 'Z' && stat.state != 'X' && stat.start_time == start_time_;
}

char ProcessHandle::state() const { return read_stat(pid_).state; }

}  // namespace lockstep
