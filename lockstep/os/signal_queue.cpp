#include "lockstep/os/signal_queue.h"

#include <sys/signalfd.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalQueue::SignalQueue(std::initializer_list<int> reported, std::initializer_list<int> held) {
  // The parent may have passed SIGCHLD on as ignored. The kernel would then discard every child's exit
  // status.
  if (is_ignored(SIGCHLD)) std::signal(SIGCHLD, SIG_DFL);
  sigset_t report;
  sigemptyset(&report);
  for (const int signal : reported) {
    if (!is_ignored(signal)) sigaddset(&report, signal);
  }
  sigset_t block = report;
  for (const int signal : held) sigaddset(&block, signal);
  if (sigprocmask(SIG_BLOCK, &block, &previous_mask_) != 0) throw SystemError("cannot block signals", errno);
  ours_ = block;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (sigismember(&previous_mask_, signal) == 1) sigdelset(&ours_, signal);
  }
  queue_.reset(signalfd(-1, &report, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!queue_.valid()) throw SystemError("cannot open a signal descriptor", errno);
}

SignalQueue::~SignalQueue() {
  // A SIGPIPE that was held must not end the process when it is unblocked.
  const timespec no_wait{};
  while (sigtimedwait(&ours_, nullptr, &no_wait) > 0) {
  }
  sigprocmask(SIG_SETMASK, &previous_mask_, nullptr);
}

std::optional<ReceivedSignal> SignalQueue::next() {
  signalfd_siginfo info{};
  if (::read(queue_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return ReceivedSignal{static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid)};
}

}  // namespace lockstep
