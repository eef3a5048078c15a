// The bound of a collective on this machine: the shortest possible time in shared memory. Threads, one per
// rank as far as there are CPUs, each on a CPU that a rank may use, only move the data (cli/bound_kernels.h).
// The bound includes the time in which they find out that all are done. No implementation in shared memory
// can be faster, in a library or not.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "cli/bound_kernels.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::cli {

// The memory of one rank of the collective, as in `lockstep bench`.
struct BoundBuffers {
  float* whole = nullptr;   // `count` floats: the buffer of the verb, or all parts
  float* second = nullptr;  // `count` floats, for a verb that does not work in place
  float* part = nullptr;    // a rank's share
};

// The moves of `rank`, of `count` floats. All ranks' moves together leave the verb's result. Pure.
std::vector<bound::Move> bound_moves(Verb verb, int rank, std::size_t count,
                                     const std::vector<BoundBuffers>& ranks);

// Chooses one CPU for each rank from those that it may use, a different one for each if possible. Returns
// fewer if there are not enough. Pure.
std::vector<int> bound_cpus(const std::vector<std::vector<int>>& allowed);

// Returns microseconds: the median of the rounds with the fastest kernel. Every rank of the group calls it.
// The first one measures while the others wait. Nothing if the ranks are not on one machine.
std::optional<double> measure_bound(const ProcessGroup& group, Verb verb, std::size_t count);

}  // namespace lockstep::cli
