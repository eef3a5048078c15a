// Whether this machine is short of memory, for those who could give some back.
//
//   if (memory_is_scarce()) cache.empty();
//
// Scarce      less than 1/16 of the machine's memory is available without swapping (MemAvailable), or less
//             than 1/16 of what a cgroup above this process may use (v2: memory.max or memory.high, less
//             memory.current, which counts file pages; those not used lately are taken as free).
// Costs       some ten microseconds, for a few files of /proc and /sys. What cannot be read is taken as
//             plenty.
#pragma once

#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// `root`: for tests, where /proc and /sys are looked for.
bool memory_is_scarce(const std::string& root = "");

}  // namespace lockstep
