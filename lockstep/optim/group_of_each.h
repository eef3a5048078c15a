// Which of an optimiser's parameter groups each parameter of a model is in, for whoever gives the optimiser
// something else in a parameter's place: a rank's shard of it, or its float32 master.
//
//   const auto [groups, problem] = group_of_each(parameters, {{fc1->bias, fc2->bias}});
//   if (!problem.empty()) throw InvalidArgument("the parameter groups " + problem);
//   const bool decays = groups[0] == 1;      // parameters[0] is neither bias: it is in the group after the
//   last
//
// Identity    is the tensor object's. An alias, or a tensor that shares memory, is another tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep::optim {

struct GroupOfEach {
  std::vector<std::size_t> groups;  // for each parameter; the number of groups for one in none
  std::string problem;              // what is wrong with the groups, to end a sentence; empty: nothing
};

GroupOfEach group_of_each(const NamedTensors& parameters, const std::vector<std::vector<at::Tensor>>& groups);

}  // namespace lockstep::optim
