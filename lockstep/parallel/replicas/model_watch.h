// ModelWatch: notices that a parameter was registered or unfrozen after the model was wrapped. DDP would then
// train it on each rank alone.
//
//   ModelWatch watch(net.get(), parameters);
//   if (const auto change = watch.change()) DDP_WRAPPER.refuse(group, *change);
//
// A parameter frozen since is not a change: no rank sends its gradient, and a backward that misses it says
// so. A module without trainable parameters, such as another activation function, is not a change either.
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
  // `module` is null for a list of tensors. It and the tensors outlive the watch.
  ModelWatch(const torch::nn::Module* module, const NamedTensors& parameters);

  // Returns the change as a sentence.
  std::optional<std::string> change();

 private:
  struct Part {  // a module and its own registered tensors
    const torch::nn::Module* module;
    // kept alive, so that an address identifies a module
    std::vector<std::shared_ptr<torch::nn::Module>> children;
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
