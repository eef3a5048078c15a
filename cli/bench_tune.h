// `lockstep bench --tune`: which way an all_reduce of private memory should take through shared memory, by
// size, on this machine.
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
  // By way and size, in microseconds; none where the way cannot be taken.
  std::array<std::vector<std::optional<double>>, shared::PATH_COUNT> times;
};

// Of all tables the one with the least sum of times, each relative to the best at its size. One more range of
// sizes must make up for SWITCH. Pure.
shared::PathTable best_paths(const TuneTimes& times);
inline constexpr double SWITCH = 0.05;  // of one size's time: less is noise

// Starts jobs of `ranks` ranks one after the other, prints what they took and the best table; returns the
// exit code.
int tune(int ranks);

}  // namespace lockstep::cli
