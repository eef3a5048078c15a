// Whether this machine is short of memory. For code that could give some back.
//
//   if (memory_is_scarce()) cache.empty();
//
// Scarce      less than 1/16 of the machine's memory is available without swapping (MemAvailable), or less
//             than 1/16 of the limit of a cgroup above this process is left (v2: memory.max or memory.high,
//             less memory.current; file pages that were not used lately count as free).
// Costs       some ten microseconds, for a few files of /proc and /sys. A file that cannot be read counts as
//             plenty.
#pragma once

#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// `root`: for tests, where /proc and /sys are looked for.
bool memory_is_scarce(const std::string& root = "");

}  // namespace lockstep
