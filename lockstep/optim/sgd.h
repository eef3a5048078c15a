// SGD: stochastic gradient descent with momentum, as torch.optim.SGD (Python's formulas, option names and
// defaults).
//
//   const auto options = dist::optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-4);
//   dist::optim::SGD optimizer(ddp.parameters(), options);
//
//   g = grad (maximize: -grad) + weight_decay * p
//   buf = momentum * buf + (1 - dampening) * g             the first time: buf = g
//   p -= lr * (nesterov ? g + momentum * buf : buf)        without momentum: p -= lr * g
//
// optimizer.h has the rest.
#pragma once

#include <torch/arg.h>

#include <memory>
#include <vector>

#include "lockstep/optim/options_of.h"
#include "lockstep/optim/typed_optimizer.h"

namespace torch::optim {
struct SGDOptions;
struct SGDParamState;
}  // namespace torch::optim

namespace lockstep::optim {

struct SGDOptions : public OptionsOf<SGDOptions> {
  SGDOptions(double lr = 1e-3);                       // NOLINT(google-explicit-constructor): as libtorch's
  SGDOptions(const torch::optim::SGDOptions& other);  // NOLINT(google-explicit-constructor)
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, dampening) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, nesterov) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  template <typename Self, typename Visit> static void fields(Self& self, const Visit& visit) {
    visit("lr", self.lr_);
    visit("momentum", self.momentum_);
    visit("dampening", self.dampening_);
    visit("weight_decay", self.weight_decay_);
    visit("nesterov", self.nesterov_);
    visit("maximize", self.maximize_);
  }
};

class SGD : public TypedOptimizer<SGDOptions, torch::optim::SGDParamState> {
 public:
  explicit SGD(const std::vector<ParamGroup>& groups, const SGDOptions& defaults);
  explicit SGD(const std::vector<at::Tensor>& parameters, const SGDOptions& defaults);
  explicit SGD(const NamedTensors& parameters, const SGDOptions& defaults);

  bool takes_gradient_parts() const override { return true; }

 protected:
  const char* name() const override { return "SGD"; }
  void check(const SGDOptions& options) const override;
  void update(const std::vector<Gradient>& gradients) override;
};

}  // namespace lockstep::optim
