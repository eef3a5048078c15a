// agreed_metric(): one metric for all ranks, and a check that they decide on the same grounds. EarlyStopping
// and BestCheckpoints decide by it; used by this room only.
//
//   const double metric = agreed_metric("EarlyStopping::step", mine, {{"best", best_}}, group);
//
// Collective  one all_gather, which blocks. Without a group this process is alone and nothing is sent.
// Returns     on all ranks the same bits: the metric itself if all ranks give the same one, else the mean
//             over the ranks in their order. NaN on one rank is NaN for all.
// Throws      Mismatch on all ranks, naming the number and two ranks that have it differently; the group
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

// By name; equally many on all ranks.
using AlikeNumbers = std::vector<std::pair<std::string, double>>;

// `given`: default is the world, or this process alone where there is no job.
double agreed_metric(const std::string& call, double metric, const AlikeNumbers& alike,
                     const std::optional<ProcessGroup>& given);

// The tensor of that name. Throws InvalidArgument, naming `call`, when there is none.
at::Tensor state_entry(const std::string& call, const NamedTensors& tensors, const std::string& name);

}  // namespace lockstep
