// ReplicaMasters: float32 copies of a 16-bit model's parameters, which the optimiser steps in their place,
// for a model of which every rank has all (stage 0). At the other stages ShardedDataParallel has them.
//
//   ReplicaMasters masters(ddp.named_parameters().pairs());      // after all ranks have rank 0's values
//   optim::AdamW optimizer(masters.trained());
//   masters.take_gradients();                                    // before the gradients are unscaled
//   optimizer.step();
//   masters.round();                                             // into the model's parameters
//
// Trained     the masters by their parameters' names; parameters that are float32 already are their own.
// State       of the optimiser, with each master as "state.NAME.master_weight": the names that
//             ShardedDataParallel's optimiser saves, so that either loads the other's checkpoints.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <vector>

#include "lockstep/optim/parameter_shard.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::compat::deepspeed {

class ReplicaMasters {
 public:
  ReplicaMasters() = default;
  explicit ReplicaMasters(const NamedTensors& parameters);

  const NamedTensors& trained() const { return trained_; }
  std::vector<at::Tensor> parameters() const;  // of the model, in the same order
  // What an optimiser steps for each group of the model's parameters, and last for those in none. Throws
  // InvalidArgument: a tensor that is none of them, or is there twice.
  std::vector<std::vector<optim::ParameterShard>> grouped(
      const std::vector<std::vector<at::Tensor>>& groups) const;
  void take_gradients() const;
  void round() const;
  void follow() const;  // after somebody else has written the model's parameters

  NamedTensors state_of(torch::optim::Optimizer& optimizer) const;
  void load(torch::optim::Optimizer& optimizer, const NamedTensors& state) const;

 private:
  bool has_master(std::size_t i) const;

  NamedTensors parameters_;  // of the model, those that are trained
  NamedTensors trained_;
};

}  // namespace lockstep::compat::deepspeed
