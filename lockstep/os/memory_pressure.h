// memory_is_scarce: whether this machine is short of memory, for code that could give some back.
//
//   if (memory_is_scarce()) cache.empty();
//
// Scarce      less than 1/16 of the machine's memory is available without swapping (MemAvailable), or less
//             than 1/16 of the limit of a cgroup of this process is left (version 2: memory.max or
//             memory.high, less memory.current; file pages that were not used recently count as free).
// Costs       reads a few files of /proc and /sys. A file that cannot be read counts as enough memory.
#pragma once

#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Tests pass a folder that stands for "/".
bool memory_is_scarce(const std::string& root = "");

}  // namespace lockstep
