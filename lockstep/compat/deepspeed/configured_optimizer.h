// The optimiser that a DeepSpeed configuration names, with the groups of model_parameters. Used by the
// engine.
//
//   const ClientOptimizer optimizer = configured_optimizer(*config.optimizer, {});
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/compat/deepspeed/client_optimizer.h"
#include "lockstep/compat/deepspeed/config.h"

namespace lockstep::compat::deepspeed {

// All of one type, the configuration's.
ClientOptimizer configured_optimizer(const OptimizerConfig& config,
                                     const std::vector<ShardedGroup<OptimizerConfig>>& groups);

}  // namespace lockstep::compat::deepspeed
