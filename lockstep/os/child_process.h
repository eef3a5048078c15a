// Starting a program as a child process, without a shell, and learning how it ended.
//
//   SpawnRequest request;
//   request.executable = "/usr/bin/env";
//   request.arguments = {"env", "true"};
//   request.environment = {"PATH=/usr/bin"};
//   const pid_t pid = spawn(request);                       // returns when the program runs, or throws SpawnError
//   while (!poll_exit(pid)) ...
//
// The child leads a process group of its own, dies when the thread that called spawn() ends (PR_SET_PDEATHSIG; its own
// children do not: see os/descendants.h), has every signal at its default unless it was ignored before, and holds no
// descriptors besides those named and those that were inheritable already.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

struct SpawnRequest {
  std::string executable;                // a path: PATH is not searched
  std::vector<std::string> arguments;    // argv, its own name included
  std::vector<std::string> environment;  // "NAME=value", the whole of it
  int standard_input = -1;               // -1: /dev/null
  int standard_output = -1;
  int standard_error = -1;
  std::vector<int> inherited;             // descriptors the child keeps, under the same numbers
  std::vector<int> cpus;                  // the child's affinity mask; empty: as the parent's
  const sigset_t* signal_mask = nullptr;  // blocked signals of the child; null: none
};

// The program could not be started: error_number() is ENOENT, EACCES, ENOEXEC, ...
class SpawnError : public SystemError {
 public:
  using SystemError::SystemError;
};

// Blocks until the child has called exec. Fails: SpawnError when exec failed, SystemError when there is no more process.
pid_t spawn(const SpawnRequest& request);

// Forks: the child runs `body` and exits with what it returns, without running the parent's destructors or exit handlers.
// Only for a process with one thread. Fails: SystemError.
pid_t fork_child(const std::function<int()>& body);

// Puts the calling process into a process group of its own, so that signals to its old group (Ctrl-C) miss it.
void leave_process_group();

// How a process ended: by exit(code) or by a signal.
struct ExitStatus {
  int code = 0;
  int signal = 0;  // 0: it exited by itself

  bool success() const { return code == 0 && signal == 0; }
  int shell_code() const { return signal != 0 ? 128 + signal : code; }  // as a shell's $?
};

// Reaps `pid` if it has ended. nullopt: still running. A process that is not (or no more) a child counts as exit code 255.
std::optional<ExitStatus> poll_exit(pid_t pid);
ExitStatus wait_exit(pid_t pid);  // blocks

void signal_process(pid_t pid, int signal);
pid_t this_process();

// Signals the process group that `leader` leads. Only for a leader that has not been reaped: its number still means it.
void signal_process_group(pid_t leader, int signal);

// "SIGKILL", "SIGRTMIN+3"; and the reverse, 0 for an unknown name.
std::string signal_name(int signal);

// "exit code 3", "killed by SIGSEGV".
std::string describe(const ExitStatus& status);

// The path that `program` means: itself when it has a slash, else the first executable file on PATH (`path_variable`).
struct ProgramPath {
  std::string path;
  int error_number = 0;  // 0, ENOENT (not found), EACCES (found, not executable), EISDIR
};
ProgramPath find_program(const std::string& program, const std::string& path_variable);

}  // namespace lockstep
