#include "lockstep/os/process_handle.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/os/kernel_features.h"
#include "lockstep/os/process_table.h"

namespace lockstep {

ProcessHandle::ProcessHandle(pid_t pid) : pid_(pid) {
  if (kernel_has(KernelFeature::PIDFD)) {
    pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (pidfd_.valid()) fcntl(pidfd_.get(), F_SETFD, FD_CLOEXEC);
  } else {
    start_time_ = process_stat(pid).start_time;
  }
}

Fd own_handle() {
  if (!kernel_has(KernelFeature::PIDFD)) return {};
  Fd handle(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (handle.valid()) fcntl(handle.get(), F_SETFD, FD_CLOEXEC);
  return handle;
}

bool ProcessHandle::alive() const {
  if (pidfd_.valid()) {
    pollfd entry = {pidfd_.get(), POLLIN, 0};
    const int ready = poll(&entry, 1, 0);
    return ready == 0 || (ready < 0 && errno == EINTR);
  }
  if (kernel_has(KernelFeature::PIDFD)) return false;  // it was gone when the handle was opened
  const ProcessStat stat = process_stat(pid_);
  return stat.state != '?' && stat.state != 'Z' && stat.state != 'X' && stat.start_time == start_time_;
}

char ProcessHandle::state() const { return process_stat(pid_).state; }

}  // namespace lockstep
