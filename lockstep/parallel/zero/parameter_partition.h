// Decides which rank steps which parameters if ranks share an optimiser's work. It is the partition of
// Python's ZeroRedundancyOptimizer, parameter by parameter. Pure.
//
//   const auto partition = partition_parameters({{10, 4, 3}, {7}}, /*ranks=*/2);   // elements, by group
//   std::cout << to_text(partition);
//
//   rank 0, 10 elements: group 0: 0; group 1: none
//   rank 1, 14 elements: group 0: 1 2; group 1: 3
//
// How         Group after group, the largest parameter of a group comes first. Each goes to the rank with the
//             fewest elements so far. Of equal ranks the lower one gets it, and of equal parameters the
//             earlier one comes first. A parameter is never cut. One that is larger than all others together
//             has a rank of its own.
// Numbers     of parameters count through all groups, from 0.
// New groups  are added after the others and leave the owners of earlier parameters as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

using NumbersByGroup = std::vector<std::vector<std::size_t>>;

struct ParameterPartition {
  // By rank: the numbers of its parameters, in the order of assignment.
  std::vector<NumbersByGroup> of_rank;
  std::vector<std::int64_t> elements;  // by rank
};

// `sizes` are the numbers of elements, by group and parameter.
ParameterPartition partition_parameters(const std::vector<std::vector<std::int64_t>>& sizes, int ranks);

std::string to_text(const ParameterPartition& partition);

}  // namespace lockstep
