// Ends every process that descends from this one, however deep, and never signals another.
//
//   adopt_orphans();                                   // grandchildren whose parent dies become our children
//   ... spawn(...) ...
//   while (!kill_children(keep).empty()) wait a moment; // each round ends one generation
//
// Only children are signalled. A child that has not been waited for keeps its pid, so the signal cannot hit
// a stranger that got the number meanwhile. The children of a killed child become ours
// (PR_SET_CHILD_SUBREAPER), even after setsid() or a double fork, and are killed in the next round.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Makes this process the one that inherits orphaned descendants (until it exits).
void adopt_orphans();

// Pids of the children of this process, zombies included, from /proc; where there is none, by asking for
// every number.
std::vector<pid_t> children_of_this_process();

// Reaps those children that have ended, except `keep` (whose exit status somebody else wants).
void reap_children(std::span<const pid_t> keep);

// Sends SIGKILL to every child except `keep`, reaps the dead, and returns those that still exist. Call again
// until empty.
std::vector<pid_t> kill_children(std::span<const pid_t> keep);

// Repeats kill_children() until nothing is left, at most for `limit`. Returns what could not be killed.
std::vector<pid_t> kill_all_children(std::span<const pid_t> keep, std::chrono::milliseconds limit);

// The name of a process's program as the kernel keeps it (at most 15 characters), "?" when it is gone.
std::string process_name(pid_t pid);

}  // namespace lockstep
