// How many files this process may have open (RLIMIT_NOFILE, `ulimit -n`), and room for more.
//
//   make_room_for_files(2 * ranks, "init_process_group, rank 3 of 64");   // throws when even the hard limit
//                                                                         // is too small
//
// The soft limit is raised by no more than is needed, so that the program keeps the room it had. Programs
// that are started later with system() or popen() inherit the raised limit; programs that os/child_process.h
// starts get the limit from before.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

struct OpenFiles {
  std::size_t open = 0;  // now
  std::size_t soft = 0;  // descriptors have smaller numbers than this,
  std::size_t hard = 0;  // to which it can be raised
};
OpenFiles open_files();

// Pure: the soft limit for `needed` more files than are open; 0 when the hard limit is too small.
std::size_t soft_limit_for(const OpenFiles& now, std::size_t needed);

// Fails: SystemError (EMFILE) in the name of `who`, with the number that is needed and how to get it.
void make_room_for_files(std::size_t needed, const std::string& who);
// The same as a question: raises nothing.
void require_room_for_files(std::size_t needed, const std::string& who);

// Lets this process open as many files as it may.
void raise_open_files();

// Gives the calling process the limits that it had before it raised any. For a child between fork and exec.
void restore_open_files();

// Files that one rank of `ranks` on a machine has open while it joins the others: a socket to, the trace and
// a handle of each; in jobs of up to 128 ranks rank 0 also holds the handle with which each said hello
// (comm/meeting/hub_greeting.h).
constexpr std::size_t open_files_of_rank(std::size_t ranks) { return (ranks > 128 ? 3 : 4) * ranks + 8; }

}  // namespace lockstep
