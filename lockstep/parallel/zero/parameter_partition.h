// Which rank steps which parameters where ranks share an optimiser's work: the partition of Python's
// ZeroRedundancyOptimizer, parameter by parameter. Pure.
//
//   const auto partition = partition_parameters({{10, 4, 3}, {7}}, /*ranks=*/2);   // elements, by group
//   std::cout << to_text(partition);
//
//   rank 0, 10 elements: group 0: 0; group 1: none
//   rank 1, 14 elements: group 0: 1 2; group 1: 3
//
// How         group after group, the largest parameter of a group first, each to the rank that has the fewest
//             elements so far; the lower rank, and the earlier parameter, where several are alike. A
//             parameter is never cut: one that is larger than all others together is one rank's.
// Numbers     of parameters count through all groups, from 0.
// New groups  added behind the others leave the owners of all earlier parameters as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

using NumbersByGroup = std::vector<std::vector<std::size_t>>;

struct ParameterPartition {
  // By rank: the numbers of its parameters, in the order in which they were given out.
  std::vector<NumbersByGroup> of_rank;
  std::vector<std::int64_t> elements;  // by rank
};

// `sizes`: the elements of each parameter, by group.
ParameterPartition partition_parameters(const std::vector<std::vector<std::int64_t>>& sizes, int ranks);

std::string to_text(const ParameterPartition& partition);

}  // namespace lockstep
