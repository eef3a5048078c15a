#include "lockstep/os/process.h"

#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

constexpr const char* THIS_PROGRAM = "/proc/self/exe";

bool can_read_proc() { return access(THIS_PROGRAM, X_OK) == 0; }

// How this process was started, saved in case there is no /proc. The C library passes main's arguments to
// constructors too.
struct Start {
  std::string program;
  std::vector<std::string> arguments;
};
Start& start() {
  static Start instance;  // written before main
  return instance;
}

__attribute__((constructor)) void remember_start(int count, char** arguments, char** /*environment*/) {
  if (can_read_proc() || arguments == nullptr) return;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel's word for an address
  const auto* const program = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  std::error_code ignored;
  if (program != nullptr) start().program = std::filesystem::absolute(program, ignored).string();
  start().arguments.assign(arguments, arguments + count);
}

}  // namespace

pid_t current_pid() { return getpid(); }
uid_t current_user() { return geteuid(); }
pid_t parent_pid() { return getppid(); }

std::vector<std::string> command_line() {
  std::vector<std::string> arguments;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments.empty() ? start().arguments : arguments;
}

std::string program_name() { return program_invocation_short_name; }

std::string program_file() { return can_read_proc() ? THIS_PROGRAM : start().program; }

void end_process(int code) { std::exit(code); }  // NOLINT(concurrency-mt-unsafe): the caller's decision

void yield_cpu() { sched_yield(); }

}  // namespace lockstep
