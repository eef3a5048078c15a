// LARS: layer-wise adaptive rate scaling, for SGD with very large batches (You, Gitman and Ginsburg, 2017,
// arXiv 1708.03888).
//
//   const double lr = dist::optim::linear_scaling(0.1, 256, 64 * dist::get_world_size());
//   dist::optim::LARS optimizer(ddp.parameters(),
//                               dist::optim::LARSOptions(lr).momentum(0.9).weight_decay(1e-4));
//
//   d = grad + weight_decay * p
//   ratio = trust_coefficient * |p| / (|grad| + weight_decay * |p| + eps)           1 if |p| or |grad| is 0
//   buf = momentum * buf + lr * ratio * d
//   p -= nesterov ? lr * ratio * d + momentum * buf : buf    Algorithm 1 of the paper has no nesterov
//
// Variants    joint_norm(true)       ratio = trust_coefficient * |p| / (|d| + eps), as SimCLR and MLPerf's
//                                    reference
//             lr_in_momentum(false)  buf = momentum * buf + ratio * d; p -= lr * buf. A change of lr then
//                                    acts at once on the whole momentum (Goyal et al., 2017, call the
//                                    difference momentum correction)
//             clip(true)             ratio = min(ratio / lr, 1): LARS never steps further than SGD, as Apex's
//                                    LARC with clip
//             adapt(false)           of a group: ratio = 1, plain SGD with momentum
// Excluded    With exclude_1d, the default, parameters of at most one dimension (biases, scales and shifts of
//             normalisation) have neither weight decay nor adaptation, as in all published results with large
//             batches. The paper's Algorithm 1 knows no exclusion: exclude_1d(false). For another choice,
//             make groups.
//
//   as in the paper  LARSOptions(lr).momentum(0.9).weight_decay(5e-4).exclude_1d(false)
//   as SimCLR        LARSOptions(lr).momentum(0.9).weight_decay(1e-6).joint_norm(true)
//   as Apex's LARC   LARSOptions(lr).momentum(0.9).trust_coefficient(0.02).eps(1e-8).clip(true)
//                    .lr_in_momentum(false).exclude_1d(false); if a norm is 0, LARC omits the weight decay,
//                    too
//
// Ratios are computed in float64 from this rank's parameters and gradients. With gradients averaged by DDP
// they have the same bits on every rank. For shards they are those of the whole parameter (reduce_norms). A
// step reads parameters and gradients twice. optimizer.h has the rest.
#pragma once

#include <torch/arg.h>

#include <memory>
#include <vector>

#include "lockstep/optim/options_of.h"
#include "lockstep/optim/typed_optimizer.h"

namespace torch::optim {
struct SGDParamState;
}

namespace lockstep::optim {

struct LARSOptions : public OptionsOf<LARSOptions> {
  LARSOptions(double lr = 1e-3);  // NOLINT(google-explicit-constructor): as libtorch's
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, nesterov) = false;
  TORCH_ARG(double, trust_coefficient) = 1e-3;
  TORCH_ARG(double, eps) = 0;
  TORCH_ARG(bool, joint_norm) = false;
  TORCH_ARG(bool, lr_in_momentum) = true;
  TORCH_ARG(bool, clip) = false;
  TORCH_ARG(bool, adapt) = true;
  TORCH_ARG(bool, exclude_1d) = true;

 public:
  template <typename Self, typename Visit> static void fields(Self& self, const Visit& visit) {
    visit("lr", self.lr_);
    visit("momentum", self.momentum_);
    visit("weight_decay", self.weight_decay_);
    visit("nesterov", self.nesterov_);
    visit("trust_coefficient", self.trust_coefficient_);
    visit("eps", self.eps_);
    visit("joint_norm", self.joint_norm_);
    visit("lr_in_momentum", self.lr_in_momentum_);
    visit("clip", self.clip_);
    visit("adapt", self.adapt_);
    visit("exclude_1d", self.exclude_1d_);
  }
};

class LARS : public TypedOptimizer<LARSOptions, torch::optim::SGDParamState> {
 public:
  explicit LARS(const std::vector<ParamGroup>& groups, const LARSOptions& defaults);
  explicit LARS(const std::vector<at::Tensor>& parameters, const LARSOptions& defaults);
  explicit LARS(const NamedTensors& parameters, const LARSOptions& defaults);

 protected:
  const char* name() const override { return "LARS"; }
  void check(const LARSOptions& options) const override;
  void update(const std::vector<Gradient>& gradients) override;
};

}  // namespace lockstep::optim
