// The state dict of an optimiser of which each rank steps a part, in the numbers of the whole optimiser, and
// back. Pure. `mine` is a rank's row of ParameterPartition::of_rank.
//
//   local optimiser of a rank with parameters 4 and 1        the whole
//   state.0.exp_avg, state.1.exp_avg                         state.4.exp_avg, state.1.exp_avg
//   param_groups.0.params = [0, 1]                           param_groups.0.params = [0, 1, 2, 3, 4]
//   param_groups.0.lr                                        param_groups.0.lr
//
// Ranks have the entries of their own parameters, and those of all groups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/parallel/zero/parameter_partition.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

using ShapesByGroup = std::vector<std::vector<std::vector<std::int64_t>>>;

// The entries "state." of a local optimiser, with the numbers of the whole.
NamedTensors state_of_parameters(const NamedTensors& local, const NumbersByGroup& mine);
// The entries "param_groups." of a local optimiser, or of the whole, for groups of so many parameters.
NamedTensors options_of_groups(const NamedTensors& tensors, const std::vector<std::size_t>& group_sizes);

// What the local optimiser of a rank loads of the whole's state. Throws InvalidArgument, on all ranks alike
// if all have the same: a state by parameter name, other groups than these, a shape that does not fit, state
// of a parameter that no group has.
NamedTensors local_part(const NamedTensors& whole, const ShapesByGroup& shapes, const NumbersByGroup& mine);

// Whether a rank needs this entry of the whole's state, of a state dict whose numbers are in order.
bool is_needed(const std::string& entry, const NumbersByGroup& mine);

}  // namespace lockstep
