#include "lockstep/os/process.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace lockstep {

pid_t current_pid() { return getpid(); }
pid_t parent_pid() { return getppid(); }

std::vector<std::string> command_line() {
  std::vector<std::string> arguments;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

void end_process(int code) { std::exit(code); }  // NOLINT(concurrency-mt-unsafe): the caller's decision

void yield_cpu() { sched_yield(); }

}  // namespace lockstep
