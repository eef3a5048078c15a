// EvalMode: a module is in eval mode as long as this lives, as within Python's `model.eval()` and
// `model.train()` around a piece of code.
//
//   const EvalMode eval(*this);
//   return models::generate(forward, tokens);
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::models {

// Puts a module into eval mode. The destructor restores the mode of each part of it.
class EvalMode {
 public:
  explicit EvalMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    for (auto& part : module.modules(/*include_self=*/false)) parts_.emplace_back(part, part->is_training());
    module.eval();
  }
  ~EvalMode() {
    module_.train(was_training_);
    // outer parts first, because train() sets inner parts, too
    for (auto& [part, was_training] : parts_) part->train(was_training);
  }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> parts_;
};

}  // namespace lockstep::models
