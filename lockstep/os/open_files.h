// Makes sure that this process may open as many files as it needs (RLIMIT_NOFILE, `ulimit -n`).
//
//   make_room_for_files(2 * ranks, "init_process_group, rank 3 of 64");   // throws if even the hard limit
//                                                                         // is too small
//
// The soft limit is raised only as far as needed. The program keeps the number of free descriptors that it
// had. Programs that system() or popen() start later inherit the raised limit; programs that
// os/child_process.h starts get the original one.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

struct OpenFiles {
  std::size_t open = 0;  // descriptors in use now
  std::size_t soft = 0;  // every descriptor is smaller than this
  std::size_t hard = 0;  // the soft limit can be raised to this
};
OpenFiles open_files();

// Pure. The soft limit that allows `needed` more files than are open; 0 if the hard limit is too small.
std::size_t soft_limit_for(const OpenFiles& now, std::size_t needed);

// Throws SystemError (EMFILE) that begins with `who` and says how many files are needed and how to allow
// them.
void make_room_for_files(std::size_t needed, const std::string& who);
// Makes the same check, but raises nothing.
void require_room_for_files(std::size_t needed, const std::string& who);

// Raises the soft limit to the hard limit.
void raise_open_files();

// Restores the limits that the calling process had before it raised any. For a child between fork and exec.
void restore_open_files();

// Files that one rank of `ranks` on a machine has open while it joins the others: for each rank a socket, its
// trace and its process handle. In jobs of up to 128 ranks, rank 0 also holds the handle that each rank sent
// with its greeting (comm/meeting/hub_greeting.h).
constexpr std::size_t open_files_of_rank(std::size_t ranks) { return (ranks > 128 ? 3 : 4) * ranks + 8; }

}  // namespace lockstep
