// Ends every descendant of this process, at any depth, and never signals another process.
//
//   adopt_orphans();                                   // grandchildren whose parent dies become our children
//   ... spawn(...) ...
//   while (!kill_children(keep).empty()) wait a moment; // each round ends one generation
//
// Only children are signalled. A child that has not been reaped keeps its pid, so the signal cannot hit a new
// process with the same number. The children of a killed child become children of this process
// (PR_SET_CHILD_SUBREAPER), even after setsid() or a double fork. The next round kills them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Makes this process inherit orphaned descendants, until it exits.
void adopt_orphans();

// Returns the pids of this process's children, zombies included. Reads /proc; without it, asks the kernel
// about every pid.
std::vector<pid_t> children_of_this_process();

// Reaps the children that have ended, except `keep`, whose exit status another part of the program needs.
void reap_children(std::span<const pid_t> keep);

// Sends SIGKILL to every child except `keep`, reaps the dead, and returns those that still exist. Call again
// until empty.
std::vector<pid_t> kill_children(std::span<const pid_t> keep);

// Repeats kill_children() until no child is left, but no longer than `limit`. Returns the children that are
// left.
std::vector<pid_t> kill_all_children(std::span<const pid_t> keep, std::chrono::milliseconds limit);

// The name of a process's program, as the kernel stores it (at most 15 characters); "?" if the process is
// gone.
std::string process_name(pid_t pid);

}  // namespace lockstep
