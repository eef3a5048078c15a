// Notices that a model is no longer the one that was wrapped, where DDP would train on one rank alone: a
// parameter registered or unfrozen since.
//
//   ModelWatch watch(net.get(), parameters);
//   if (const auto change = watch.change()) DDP_WRAPPER.refuse(group, *change);
//
// What was frozen since is not a change: nobody sends its gradient, and the backward that misses it says so.
// Nor is a module without trainable parameters, as another activation function.
//
// Cost  of change(): some comparisons of pointers per module and parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class ModelWatch {
 public:
  // `module` is null for a list of tensors; it and the tensors outlive the watch.
  ModelWatch(const torch::nn::Module* module, const NamedTensors& parameters);

  // What changed, as a sentence.
  std::optional<std::string> change();

 private:
  struct Part {  // a module, and what was registered in it itself
    const torch::nn::Module* module;
    std::vector<std::shared_ptr<torch::nn::Module>> children;  // kept alive: an address means this module
    std::vector<at::Tensor> parameters;
    bool is_same() const;
  };
  void record(const torch::nn::Module& module);

  const torch::nn::Module* module_;
  NamedTensors frozen_;
  std::vector<at::Tensor> trainable_;
  std::vector<Part> parts_;
};

}  // namespace lockstep
