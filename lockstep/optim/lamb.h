// LAMB: Adam with a layer-wise adaptive rate, for very large batches (You et al., 2019, arXiv 1904.00962,
// Algorithm 2).
//
//   dist::optim::LAMB optimizer(ddp.parameters(), dist::optim::LAMBOptions(6e-3).weight_decay(0.01));
//
//   m = beta1 * m + (1 - beta1) * grad          v = beta2 * v + (1 - beta2) * grad^2
//   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * p
//   ratio = |p| / |u|                                                              1 if one of them is 0
//   p -= lr * ratio * u
//
// Variants    bias_correction(false)     u without the two divisions, as version 3 of the paper
//             max_weight_norm(10)        the paper's phi: min(|p|, 10) in place of |p|
//             min_trust_ratio(0.01), max_trust_ratio(10)    the ratio clamped
//             max_grad_norm(1)           first scales down all gradients of all groups together to that norm.
//                                        It is one number for the whole optimiser: that of the defaults.
//                                        Those of groups do not count
//             grad_averaging(false)      m = beta1 * m + grad
//             adapt_without_decay(false) ratio = 1 for parameters without weight decay
//             adapt(false)               of a group: ratio = 1. That is AdamW except for the place of the
//                                        decay
// Excluded    With exclude_1d, the default, parameters of at most one dimension (biases, scales and shifts of
//             normalisation) have neither weight decay nor adaptation, as in the BERT trainings of the paper.
//             For another choice, make groups.
//
//   as TF Addons         LAMBOptions(lr).weight_decay(0.01), excluded as named there
//   as Apex's FusedLAMB  LAMBOptions(lr).weight_decay(0.01).max_grad_norm(1).adapt_without_decay(false)
//                        .exclude_1d(false)
//   as DeepSpeed's       LAMBOptions(lr).eps(1e-8).weight_decay(0).min_trust_ratio(0.01).max_trust_ratio(10)
//                        .exclude_1d(false)
//   as pytorch-lamb      LAMBOptions(lr).weight_decay(0).bias_correction(false).max_weight_norm(10)
//                        .exclude_1d(false)
//
// Ratios are computed in float64 from this rank's values. With gradients averaged by DDP they have the same
// bits on every rank. For shards they are those of the whole parameter (reduce_norms). Of pieces of
// tensor-parallel parameters and of stages of a pipeline they are refused until the optimiser knows what
// ranks have the rest (GradientNorm::reduce_norms). A step reads parameters, m and v twice. optimizer.h has
// the rest.
#pragma once

#include <torch/arg.h>

#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "lockstep/optim/adam.h"
#include "lockstep/optim/options_of.h"
#include "lockstep/optim/typed_optimizer.h"

namespace lockstep::optim {

struct LAMBOptions : public OptionsOf<LAMBOptions> {
  LAMBOptions(double lr = 1e-3);  // NOLINT(google-explicit-constructor): as libtorch's
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 1e-2;
  TORCH_ARG(bool, bias_correction) = true;
  TORCH_ARG(double, max_weight_norm) = std::numeric_limits<double>::infinity();
  TORCH_ARG(double, min_trust_ratio) = 0;
  TORCH_ARG(double, max_trust_ratio) = std::numeric_limits<double>::infinity();
  TORCH_ARG(double, max_grad_norm) = std::numeric_limits<double>::infinity();
  TORCH_ARG(bool, grad_averaging) = true;
  TORCH_ARG(bool, adapt_without_decay) = true;
  TORCH_ARG(bool, adapt) = true;
  TORCH_ARG(bool, exclude_1d) = true;

 public:
  template <typename Self, typename Visit> static void fields(Self& self, const Visit& visit) {
    visit("lr", self.lr_);
    visit("betas", self.betas_);
    visit("eps", self.eps_);
    visit("weight_decay", self.weight_decay_);
    visit("bias_correction", self.bias_correction_);
    visit("max_weight_norm", self.max_weight_norm_);
    visit("min_trust_ratio", self.min_trust_ratio_);
    visit("max_trust_ratio", self.max_trust_ratio_);
    visit("max_grad_norm", self.max_grad_norm_);
    visit("grad_averaging", self.grad_averaging_);
    visit("adapt_without_decay", self.adapt_without_decay_);
    visit("adapt", self.adapt_);
    visit("exclude_1d", self.exclude_1d_);
  }
};

class LAMB : public TypedOptimizer<LAMBOptions, torch::optim::AdamParamState> {
 public:
  explicit LAMB(const std::vector<ParamGroup>& groups, const LAMBOptions& defaults = {});
  explicit LAMB(const std::vector<at::Tensor>& parameters, const LAMBOptions& defaults = {});
  explicit LAMB(const NamedTensors& parameters, const LAMBOptions& defaults = {});

 protected:
  const char* name() const override { return "LAMB"; }
  void check(const LAMBOptions& options) const override;
  void update(const std::vector<Gradient>& gradients) override;

 private:
  double grad_factor(const std::vector<Gradient>& gradients) const;
};

}  // namespace lockstep::optim
