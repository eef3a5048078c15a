// Adam (Kingma and Ba, 2014; amsgrad: Reddi et al., 2018) and AdamW (Loshchilov and Hutter, 2017), as
// torch.optim.Adam and torch.optim.AdamW (Python's formulas, option names and defaults).
//
//   dist::optim::AdamW optimizer(ddp.parameters(),
//                                dist::optim::AdamWOptions(3e-4).betas({0.9, 0.95}).weight_decay(0.1));
//
//   g = grad (maximize: -grad)
//   Adam:  g += weight_decay * p            AdamW:  p *= 1 - lr * weight_decay
//   m = beta1 * m + (1 - beta1) * g      v = beta2 * v + (1 - beta2) * g^2
//   x = v, with amsgrad: x = max(x, v)   t: steps of this parameter, from 1
//   p -= lr / (1 - beta1^t) * m / (sqrt(x) / sqrt(1 - beta2^t) + eps)
//
// The two differ only in the place of weight_decay and its default: 0 for Adam, 0.01 for AdamW. optimizer.h
// has the rest.
#pragma once

#include <torch/arg.h>

#include <memory>
#include <tuple>
#include <vector>

#include "lockstep/optim/options_of.h"
#include "lockstep/optim/typed_optimizer.h"

namespace torch::optim {
struct AdamOptions;
struct AdamParamState;
struct AdamWOptions;
struct AdamWParamState;
}  // namespace torch::optim

namespace lockstep::optim {

using betas_t = std::tuple<double, double>;

struct AdamOptions : public OptionsOf<AdamOptions> {
  AdamOptions(double lr = 1e-3);                        // NOLINT(google-explicit-constructor): as libtorch's
  AdamOptions(const torch::optim::AdamOptions& other);  // NOLINT(google-explicit-constructor)
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  template <typename Self, typename Visit> static void fields(Self& self, const Visit& visit) {
    visit("lr", self.lr_);
    visit("betas", self.betas_);
    visit("eps", self.eps_);
    visit("weight_decay", self.weight_decay_);
    visit("amsgrad", self.amsgrad_);
    visit("maximize", self.maximize_);
  }
};

struct AdamWOptions : public OptionsOf<AdamWOptions> {
  AdamWOptions(double lr = 1e-3);  // NOLINT(google-explicit-constructor): as libtorch's
  AdamWOptions(const torch::optim::AdamWOptions& other);  // NOLINT(google-explicit-constructor)
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  template <typename Self, typename Visit> static void fields(Self& self, const Visit& visit) {
    visit("lr", self.lr_);
    visit("betas", self.betas_);
    visit("eps", self.eps_);
    visit("weight_decay", self.weight_decay_);
    visit("amsgrad", self.amsgrad_);
    visit("maximize", self.maximize_);
  }
};

class Adam : public TypedOptimizer<AdamOptions, torch::optim::AdamParamState> {
 public:
  explicit Adam(const std::vector<ParamGroup>& groups, const AdamOptions& defaults = {});
  explicit Adam(const std::vector<at::Tensor>& parameters, const AdamOptions& defaults = {});
  explicit Adam(const NamedTensors& parameters, const AdamOptions& defaults = {});

  bool takes_gradient_parts() const override { return true; }

 protected:
  const char* name() const override { return "Adam"; }
  void check(const AdamOptions& options) const override;
  void update(const std::vector<Gradient>& gradients) override;
};

class AdamW : public TypedOptimizer<AdamWOptions, torch::optim::AdamWParamState> {
 public:
  explicit AdamW(const std::vector<ParamGroup>& groups, const AdamWOptions& defaults = {});
  explicit AdamW(const std::vector<at::Tensor>& parameters, const AdamWOptions& defaults = {});
  explicit AdamW(const NamedTensors& parameters, const AdamWOptions& defaults = {});

  bool takes_gradient_parts() const override { return true; }

 protected:
  const char* name() const override { return "AdamW"; }
  void check(const AdamWOptions& options) const override;
  void update(const std::vector<Gradient>& gradients) override;
};

}  // namespace lockstep::optim
