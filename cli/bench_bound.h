// The bound of a collective on this machine: the time in which threads, one per rank as far as there are CPUs
// for them, each on a CPU that a rank may use, do nothing but move the data (cli/bound_kernels.h), and what
// it takes them to find out that all of them are done. No way to carry out the collective in shared memory
// can be faster, whether a library is in between or not.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "cli/bound_kernels.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::cli {

// The memory of one rank of the collective: as `lockstep bench` has it.
struct BoundBuffers {
  float* whole = nullptr;   // `count` floats: what the verb works on, or all parts
  float* second = nullptr;  // `count` floats: where it cannot be in place
  float* part = nullptr;    // a rank's share
};

// What `rank` moves, of `count` floats: together, the ranks leave behind what the verb is to leave behind.
// Pure.
std::vector<bound::Move> bound_moves(Verb verb, int rank, std::size_t count,
                                     const std::vector<BoundBuffers>& ranks);

// One CPU for each rank, no two ranks on the same as far as possible, from those that each may use. Fewer
// than ranks when there are not enough. Pure.
std::vector<int> bound_cpus(const std::vector<std::vector<int>>& allowed);

// Microseconds, the median of the rounds with the best kernel. Every rank of the group calls it, the first
// measures while the others wait. Nothing if the ranks are not on one machine.
std::optional<double> measure_bound(const ProcessGroup& group, Verb verb, std::size_t count);

}  // namespace lockstep::cli
