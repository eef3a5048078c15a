// The process table of this machine, as /proc shows it.
//
//   if (process_stat(4121).state == 'T') ...                       // stopped (SIGSTOP)
//   for (const ProcessEntry& entry : all_processes()) ...          // entry.pid, entry.parent
//
// What is read may have ended by the time it is looked at; a start time tells a process from a later one
// with its pid.
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
// '?' and zeros when there is none.
ProcessStat process_stat(pid_t pid);

// The arguments that a process was started with, its own name first; empty when /proc does not show it.
std::vector<std::string> command_line(pid_t pid);

// The number of this process's namespace, "4026531836"; containers have their own. "": the kernel does not
// tell.
std::string process_namespace();
// The same of the network namespace of another process. "": it has ended, or belongs to another user.
std::string network_namespace(pid_t pid);
// The parent of this process, its parent, and so on, as far as /proc shows them.
std::vector<pid_t> ancestor_processes();

// Every process that can be seen here.
struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
};
std::vector<ProcessEntry> all_processes();

// Whether `root` or a descendant of it is stopped (SIGSTOP, a debugger).
bool is_any_stopped(pid_t root, const std::vector<ProcessEntry>& processes);

// Entries of a folder whose names are numbers: "/proc" has processes, "/proc/self/task" the threads of this
// one. Empty when it cannot be read.
std::vector<int> numbers_in(const char* folder);

}  // namespace lockstep
