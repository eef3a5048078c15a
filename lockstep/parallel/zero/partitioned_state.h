// Converts the state dict of a rank's part of an optimiser to the numbers of the whole optimiser, and back.
// Pure. `mine` is a rank's row of ParameterPartition::of_rank.
//
//   local optimiser of a rank with parameters 4 and 1        the whole
//   state.0.exp_avg, state.1.exp_avg                         state.4.exp_avg, state.1.exp_avg
//   param_groups.0.params = [0, 1]                           param_groups.0.params = [0, 1, 2, 3, 4]
//   param_groups.0.lr                                        param_groups.0.lr
//
// A rank has the entries of its own parameters, and those of all groups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/parallel/zero/parameter_partition.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

using ShapesByGroup = std::vector<std::vector<std::vector<std::int64_t>>>;

// Returns the "state." entries of a local optimiser, with the numbers of the whole.
NamedTensors state_of_parameters(const NamedTensors& local, const NumbersByGroup& mine);
// Returns the "param_groups." entries of a local or whole optimiser, for groups of `group_sizes` parameters.
NamedTensors options_of_groups(const NamedTensors& tensors, const std::vector<std::size_t>& group_sizes);

// Returns the part of the whole's state that the local optimiser of a rank loads. Throws InvalidArgument, on
// all ranks alike if all have the same state: a state by parameter name, other groups than these, a shape
// that does not fit, state of a parameter that no group has.
NamedTensors local_part(const NamedTensors& whole, const ShapesByGroup& shapes, const NumbersByGroup& mine);

// Returns whether a rank needs this entry of the whole's state, if the numbers of the state dict are in
// order.
bool is_needed(const std::string& entry, const NumbersByGroup& mine);

}  // namespace lockstep
