// The process table of this machine, as /proc shows it.
//
//   if (process_stat(4121).state == 'T') ...                       // stopped (SIGSTOP)
//   for (const ProcessEntry& entry : all_processes()) ...          // entry.pid, entry.parent
//
// A process may have ended by the time a caller looks at its entry. The start time distinguishes it from a
// later process with the same pid.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct ProcessStat {
  char state = '?';  // the letter of /proc/PID/stat (R, S, D, T, Z, ...)
  pid_t parent = 0;
  std::uint64_t start_time = 0;  // clock ticks since the machine started
};
// '?' and zeros if there is no such process.
ProcessStat process_stat(pid_t pid);

// The arguments that a process was started with, its own name first. Empty if /proc does not show it.
std::vector<std::string> command_line(pid_t pid);

// The number of this process's pid namespace, "4026531836". Each container has its own. "" if the kernel does
// not provide it.
std::string process_namespace();
// The number of another process's network namespace; "" if it has ended or belongs to another user.
std::string network_namespace(pid_t pid);
// The parent of this process, its parent, and so on, as far as /proc shows them.
std::vector<pid_t> ancestor_processes();

// All visible processes.
struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
};
std::vector<ProcessEntry> all_processes();

// Returns whether `root` or one of its descendants is stopped (SIGSTOP, a debugger).
bool is_any_stopped(pid_t root, const std::vector<ProcessEntry>& processes);

// The entries of a folder whose names are numbers. "/proc" contains processes, "/proc/self/task" the threads
// of this one. Empty if the folder cannot be read.
std::vector<int> numbers_in(const char* folder);

}  // namespace lockstep
