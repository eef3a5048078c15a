#include "lockstep/os/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep {
namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds timeout) {
  const auto count = timeout.count();
  const timespec span = {static_cast<time_t>(count / 1'000'000'000),
                         static_cast<long>(count % 1'000'000'000)};
  futex(word, FUTEX_WAIT, seen, &span);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) { futex(word, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace lockstep
