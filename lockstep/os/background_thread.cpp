#include "lockstep/os/background_thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr int NICENESS = 16;  // the scheduler's weight 29; an ordinary thread has 1024

// From linux/ioprio.h: the lowest priority in the class "best effort".
constexpr int IOPRIO_WHO_PROCESS = 1;
constexpr int LOWEST_BEST_EFFORT = (2 << 13) | 7;

}  // namespace

void become_background_thread(const char* name) {
  pthread_setname_np(pthread_self(), name);
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, thread, NICENESS);  // of this thread alone, on Linux
  ::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, LOWEST_BEST_EFFORT);
}

}  // namespace lockstep
