#include "lockstep/os/process.h"

#include <sched.h>
#include <unistd.h>

namespace lockstep {

pid_t current_pid() { return getpid(); }

int online_cpus() {
  static const int count = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return count;
}

void yield_cpu() { sched_yield(); }

}  // namespace lockstep
