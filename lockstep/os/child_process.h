// Starts a program as a child process, without a shell, and reports how it ended.
//
//   SpawnRequest request;
//   request.executable = "/usr/bin/env";
//   request.arguments = {"env", "true"};
//   request.environment = {"PATH=/usr/bin"};
//   ChildProcess child = spawn(request);          // returns before exec, which may hang
//                                                 // on a dead file server
//   ... poll child.exec_report ...
//   if (exec_error(child) == 0) ...               // it runs
//   while (!poll_exit(child.pid)) ...
//
// The child leads a process group of its own and gets the requested signal mask. It dies when the thread that
// called spawn() ends (PR_SET_PDEATHSIG). Its own children do not; os/descendants.h ends them. It holds the
// descriptors that the request names and those that were inheritable before, and no others. Its limit of open
// files is the limit of this process before make_room_for_files() raised it (open_files.h).
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct SpawnRequest {
  std::string executable;                // a path: PATH is not searched
  std::vector<std::string> arguments;    // argv, with the program's name first
  std::vector<std::string> environment;  // "NAME=value", complete
  int standard_input = -1;               // -1: /dev/null
  int standard_output = -1;
  int standard_error = -1;
  std::vector<int> inherited;             // descriptors the child keeps, under the same numbers
  std::vector<int> cpus;                  // the child's affinity mask; empty: the parent's
  const sigset_t* signal_mask = nullptr;  // blocked signals of the child; null: none
};

struct ChildProcess {
  pid_t pid = 0;
  Fd exec_report;  // readable once exec has succeeded or failed
};

// Throws SystemError if the system has no free process.
ChildProcess spawn(const SpawnRequest& request);

// Waits for exec. Returns the errno value with which it failed (ENOENT, EACCES, ENOEXEC, ...), or 0 if the
// program runs. Does not block once `exec_report` is readable.
int exec_error(const ChildProcess& child);

// Forks. The child runs `body` and exits with its result, without the parent's destructors or exit handlers.
// Only for a process with one thread. Throws SystemError.
pid_t fork_child(const std::function<int()>& body);

// Asks the kernel to kill the calling process when the thread that forked it ends.
void die_with_parent();

// Moves the calling process to a process group of its own, so that signals to its old group (Ctrl-C) miss it.
void leave_process_group();

// Sets the calling process's name in ps and top, at most 15 characters.
void name_process(const std::string& name);

// How a process ended: by exit(code) or by a signal.
struct ExitStatus {
  int code = 0;
  int signal = 0;  // 0: it exited by itself

  bool success() const { return code == 0 && signal == 0; }
  int shell_code() const { return signal != 0 ? 128 + signal : code; }  // the value of a shell's $?
};

// Reaps `pid` if it has ended; nullopt if it still runs. A process that is not, or no longer, a child counts
// as exit code 255.
std::optional<ExitStatus> poll_exit(pid_t pid);
ExitStatus wait_exit(pid_t pid);  // blocks

// Returns whether the child `pid` has ended. The child is not reaped, so its number cannot be reused yet.
bool has_ended(pid_t pid);

// Signals one process. Throws InternalError for 1 and smaller numbers: kill() would take them for process 1,
// the caller's own group, or every process that the user may signal.
void signal_process(pid_t pid, int signal);

// Signals the process group that `leader` founded, and `leader` itself if it has moved to another group. Only
// for a leader that has not been reaped, because its number could otherwise belong to another process. Throws
// like signal_process().
void signal_process_group(pid_t leader, int signal);

// "SIGKILL", "SIGRTMIN+3".
std::string signal_name(int signal);

// "exit code 3", "killed by SIGSEGV".
std::string describe(const ExitStatus& status);

// Finds the file that `program` names: itself if it contains a slash, else the first executable file on PATH
// (`path_variable`).
struct ProgramPath {
  std::string path;
  int error_number = 0;  // 0, ENOENT (not found), EACCES (found, but not executable), EISDIR
};
ProgramPath find_program(const std::string& program, const std::string& path_variable);

}  // namespace lockstep
