#include "lockstep/os/file_size_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <ctime>
#include <limits>

namespace lockstep {

std::size_t largest_file() {
  rlimit limit{};
  constexpr auto ANY = std::numeric_limits<std::size_t>::max();
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? ANY : limit.rlim_cur;
}

NoFileSizeSignal::NoFileSizeSignal() {
  if (largest_file() == std::numeric_limits<std::size_t>::max()) return;
  sigemptyset(&signal_);
  sigaddset(&signal_, SIGXFSZ);
  is_held_ = pthread_sigmask(SIG_BLOCK, &signal_, &before_) == 0 && sigismember(&before_, SIGXFSZ) == 0;
}

NoFileSizeSignal::~NoFileSizeSignal() {
  if (!is_held_) return;
  const int error = errno;
  const timespec no_wait{};
  while (sigtimedwait(&signal_, nullptr, &no_wait) == -1 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace lockstep
