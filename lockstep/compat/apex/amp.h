// Apex's amp: mixed precision by optimisation level, for programs written for NVIDIA Apex. New programs take
// autocast and GradScaler (lockstep/amp), as Python's moved to torch.amp when Apex's amp was removed in 2025.
//
//   namespace apex = lockstep::compat::apex;
//   namespace amp = apex::amp;
//   torch::nn::Linear net(D_in, D_out);
//   torch::optim::SGD sgd(net->parameters(), 1e-3);
//   auto [model, optimizer] = amp::initialize(net, sgd, "O1");  // once, before the wrap in DDP
//   apex::parallel::DistributedDataParallel ddp(model);                        // parallel.h
//   for (int step = 0; step < 500; ++step) {
//     optimizer.zero_grad();
//     auto loss = torch::mse_loss(ddp(x), y);
//     {
//       auto scaled_loss = amp::scale_loss(loss, optimizer);
//       scaled_loss.backward();
//     }                                                                        // gradients are unscaled here
//     clip_grad_norm_(amp::master_params(optimizer), 1.0);
//     optimizer.step();  // skipped after an overflow, on all ranks
//   }
//
//   level  parameters                forward                            masters   loss scale
//   O0     float32                   as they are                        no        1
//   O1     as they are               under autocast                     no        dynamic
//   O2     float16, not batch norms  inputs cast to float16             float32   dynamic
//   O3     float16                   inputs cast to float16             no        1
//
// The output of O1, O2 and O3 is float32 again (or cast_model_outputs), so that a loss outside the model is
// computed in it.
//
// Loss scale   Dynamic: from 2^16, halved at each overflow, doubled after 2000 clean steps, at most 2^24
//              (loss_scale.h). It changes in optimizer.step(), once for each loss that was scaled since the
//              previous step.
// Accumulate   Several scale_loss() before one step(): gradients add up as if unscaled. With delay_unscale
//              they stay scaled, which saves a pass; the last one before step() must unscale.
// Several      losses: num_losses, and loss_id of scale_loss(), give each loss its own scale. It falls when
//              the gradients that this loss added overflow. (They are then set to zero, because the step is
//              skipped in any case.) Several models or optimisers: initialize each pair by itself.
// Collective   optimizer.step() after a dynamic scale: one all_reduce of 8 bytes per loss, so that all ranks
//              skip together.
// Masters      O2 copies them in initialize(), before all ranks have rank 0's values. Wrap the model in
//              apex::parallel's DistributedDataParallel, which broadcasts them too, or make the same model on
//              every rank.
// Differs      from Apex: O1 patches no functions; autocast holds within the model's forward, with libtorch's
//              lists. If two optimisers share a parameter, the first one that steps unscales its gradient.
// Fails        InvalidArgument: an unknown level; an option that the level does not use (Apex's rules); a
//              parameter of the optimiser that is not float32; step() while gradients are still scaled.
// Source       NVIDIA/apex before cb65b8ed (2025-05): apex/amp/frontend.py, handle.py, _process_optimizer.py,
//              scaler.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/autograd/autocast.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::compat::apex::amp {

// The keyword arguments of amp.initialize. Those that are not set follow from the level.
struct InitializeOptions {
  bool enabled = true;
  std::optional<at::ScalarType> cast_model_type = {};  // O0, O2, O3
  std::optional<bool> keep_batchnorm_fp32 = {};        // O2, O3
  std::optional<bool> master_weights = {};             // O2, O3
  std::optional<double> loss_scale = {};               // a fixed scale; 0: dynamic
  std::optional<at::ScalarType> cast_model_outputs = {};
  int num_losses = 1;
  double min_loss_scale = 0;
  double max_loss_scale = 16777216;
  at::ScalarType half = at::kHalf;  // Apex has only kHalf; at::kBFloat16 is possible here
  // the group that skips together; default: world(), or this process alone
  std::optional<ProcessGroup> process_group = {};
};

// The properties of a level, changed by these options.
struct Properties {
  std::optional<at::ScalarType> cast_model_type;
  std::optional<at::ScalarType> autocast;
  bool keep_batchnorm_fp32 = false;
  bool master_weights = false;
  double loss_scale = 1;  // 0: dynamic
  std::optional<at::ScalarType> cast_model_outputs;
};
Properties properties_of(const std::string& opt_level, const InitializeOptions& options);

// The first function returns the device of a model's parameters. The second casts its inputs as its level
// says.
at::DeviceType device_of(const torch::nn::Module& module);
at::Tensor cast_floating(const at::Tensor& tensor, std::optional<at::ScalarType> dtype);

// An optimiser with its level. A value that is cheap to copy. The optimiser itself must live as long.
class Optimizer {
 public:
  Optimizer(torch::optim::Optimizer& optimizer, const Properties& properties,
            const InitializeOptions& options);

  void zero_grad(bool set_to_none = true);
  // Returns false if the step was skipped, on all ranks, because a gradient of some rank was not finite.
  bool step();
  std::vector<torch::optim::OptimizerParamGroup>& param_groups();  // of the masters, with O2
  torch::optim::Optimizer& get() const;                            // for learning rate schedules
  double loss_scale(int loss_id = 0) const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

std::vector<at::Tensor> masters_of(const Optimizer& optimizer);

// A model with its level: forward() casts inputs and outputs. A value that is cheap to copy.
template <typename ModuleType> class Model {
 public:
  Model(std::shared_ptr<ModuleType> module, const Properties& properties, Optimizer optimizer)
      : module_(std::move(module)), properties_(properties), optimizer_(std::move(optimizer)) {}

  template <typename... Arguments> auto forward(const Arguments&... arguments) const {
    if (!properties_.autocast) return run(arguments...);
    const Autocast mixed(device_of(*module_), properties_.autocast, /*enabled=*/true, {});
    return run(arguments...);
  }
  template <typename... Arguments> auto operator()(const Arguments&... arguments) const {
    return forward(arguments...);
  }
  ModuleType* operator->() const { return module_.get(); }
  const std::shared_ptr<ModuleType>& ptr() const { return module_; }
  // The float32 masters of its parameters; none except with O2. apex::parallel::DistributedDataParallel gives
  // all ranks those of rank 0.
  std::vector<at::Tensor> masters() const { return masters_of(optimizer_); }

 private:
  template <typename... Arguments> auto run(const Arguments&... arguments) const {
    auto output = module_->forward(cast_input(arguments)...);
    if constexpr (std::same_as<decltype(output), at::Tensor>) {
      return cast_floating(output, properties_.cast_model_outputs);
    } else {
      return output;
    }
  }
  template <typename Argument> auto cast_input(const Argument& argument) const {
    if constexpr (std::same_as<Argument, at::Tensor>) {
      return cast_floating(argument, properties_.cast_model_type);
    } else {
      return argument;
    }
  }

  std::shared_ptr<ModuleType> module_;
  Properties properties_;
  Optimizer optimizer_;
};

void cast_model(torch::nn::Module& module, const Properties& properties);

template <typename ModuleType>
std::pair<Model<ModuleType>, Optimizer> initialize(std::shared_ptr<ModuleType> module,
                                                   torch::optim::Optimizer& optimizer,
                                                   const std::string& opt_level = "O1",
                                                   const InitializeOptions& options = {}) {
  const Properties properties = properties_of(opt_level, options);
  Optimizer with_level(optimizer, properties, options);  // copies float32 values before the model is cast
  cast_model(*module, properties);
  return {Model<ModuleType>(std::move(module), properties, with_level), with_level};
}
template <typename ModuleType>
std::pair<Model<ModuleType>, Optimizer> initialize(const torch::nn::ModuleHolder<ModuleType>& module,
                                                   torch::optim::Optimizer& optimizer,
                                                   const std::string& opt_level = "O1",
                                                   const InitializeOptions& options = {}) {
  return initialize(module.ptr(), optimizer, opt_level, options);
}

// The scaled loss. Its destructor unscales the gradients. If backward() threw, it leaves them alone. An error
// of the unscaling is thrown by optimizer.step().
class ScaledLoss {
 public:
  ScaledLoss(const at::Tensor& loss, const Optimizer& optimizer, int loss_id, bool delay_unscale);
  ~ScaledLoss();
  ScaledLoss(const ScaledLoss&) = delete;
  ScaledLoss& operator=(const ScaledLoss&) = delete;

  void backward() const { scaled_.backward(); }
  const at::Tensor& operator*() const { return scaled_; }
  const at::Tensor* operator->() const { return &scaled_; }

 private:
  at::Tensor scaled_;
  const Optimizer optimizer_;
  const int loss_id_;
  const bool delay_unscale_;
  const int exceptions_before_;
};
[[nodiscard]] inline ScaledLoss scale_loss(const at::Tensor& loss, const Optimizer& optimizer,
                                           int loss_id = 0, bool delay_unscale = false) {
  return {loss, optimizer, loss_id, delay_unscale};
}

// The parameters that the optimiser steps: the float32 masters with O2, else the model's own.
std::vector<at::Tensor> master_params(const Optimizer& optimizer);

// For every loss: "loss_scaler0.loss_scale" and "loss_scaler0.unskipped". Loading needs the same number of
// losses.
NamedTensors state_dict(const Optimizer& optimizer);
void load_state_dict(const Optimizer& optimizer, const NamedTensors& state);

}  // namespace lockstep::compat::apex::amp
