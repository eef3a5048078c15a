// `lockstep bench --tune`: finds, for this machine, the best path of an all_reduce of private memory through
// shared memory, by size.
//
//   const TuneTimes times = ...;                         // measured with each way forced (LOCKSTEP_PATHS)
//   describe(best_paths(times));                         // "inline:72,one_shot:16384,window"
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backends/segment/paths.h"

namespace lockstep::cli {

struct TuneTimes {
  std::vector<std::size_t> bytes;  // ascending
  // By path and size, in microseconds; none if the path is not possible.
  std::array<std::vector<std::optional<double>>, shared::PATH_COUNT> times;
};

// Returns the table with the least sum of times, each relative to the best at its size. One more range of
// sizes must gain at least SWITCH. Pure.
shared::PathTable best_paths(const TuneTimes& times);
inline constexpr double SWITCH = 0.05;  // as a share of one size's time: less is noise

// Starts jobs of `ranks` ranks one after the other, and prints their times and the best table. Returns the
// exit code.
int tune(int ranks);

}  // namespace lockstep::cli
