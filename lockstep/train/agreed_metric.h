// agreed_metric(): one metric for all ranks, and a check that all ranks decide by the same numbers.
// EarlyStopping and BestCheckpoints use it.
//
//   const double metric = agreed_metric("EarlyStopping::step", mine, {{"best", best_}}, group);
//
// Collective  one all_gather, which blocks. Without a group this process is alone and nothing is sent.
// Returns     the same bits on all ranks: the metric itself if all ranks give the same one, else the mean
//             over the ranks in their order. NaN on one rank is NaN for all.
// Throws      Mismatch on all ranks that names the number and two ranks with different values; the group
//             stays usable. InvalidArgument in a process outside of the group.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// By name; the same names on all ranks.
using AlikeNumbers = std::vector<std::pair<std::string, double>>;

// `given` defaults to the world, or to this process alone if there is no job.
double agreed_metric(const std::string& call, double metric, const AlikeNumbers& alike,
                     const std::optional<ProcessGroup>& given);

// Returns the tensor of that name. Throws InvalidArgument that names `call` if there is none.
at::Tensor state_entry(const std::string& call, const NamedTensors& tensors, const std::string& name);

}  // namespace lockstep
