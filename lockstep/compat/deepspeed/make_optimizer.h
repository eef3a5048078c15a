// The optimiser that a DeepSpeed configuration names, over parameters or over the shards of a model.
//
//   const std::unique_ptr<torch::optim::Optimizer> optimizer = make_optimizer(*config.optimizer, parameters);
//
// Used by the engine.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>

#include "lockstep/compat/deepspeed/config.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::compat::deepspeed {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        const NamedTensors& parameters);
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        ShardedDataParallelBase& model);

}  // namespace lockstep::compat::deepspeed
