// SyncBatchNorm: batch normalisation over the batches of all ranks together, so that N ranks with a share
// each train as one process with the whole batch. Its statistics are those of torch::nn::BatchNorm1d, 2d and
// 3d on the joined batch.
//
//   dist::SyncBatchNorm norm(dist::SyncBatchNormOptions(64).momentum(0.1));
//   at::Tensor y = norm->forward(x);  // x: (N, 64), (N, 64, L), (N, 64, H, W), ...
//   dist::convert_sync_batchnorm(*net);  // a model that has BatchNorm: convert_sync_batchnorm.h
//
// Who         every rank of process_group, in training mode, the same layers in the same order, forward and
//             backward. Channels agree; batches need not: ranks count by the number of their values, and a
//             rank with an empty batch takes part (it calls backward on what depends on the output, too). In
//             eval mode nothing is communicated, as alone and before init_process_group(): then it is
//             libtorch's batch_norm.
// Gradients   of the input: those of the joined batch. Of weight and bias: this rank's share of theirs, which
//             DistributedDataParallel averages, as in Python. So with a loss that is a mean over this rank's
//             share, weights get the gradient of the mean over all if the shares are equal.
// Buffers     equal on all ranks. momentum(std::nullopt) is the cumulative average. Names are BatchNorm's: a
//             state dict of one fits the other, also from Python.
// Numbers     each rank's count, mean and sum of squared deviations meet in float64 (Chan et al., "Updating
//             Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979), in the same order
//             everywhere: no difference of large squares. float16 and bfloat16 inputs are normalised in
//             float32.
// Costs       two collectives per layer and step: an all_gather of 2C + 1 doubles forward, an all_reduce of
//             2C backward (none if the input needs no gradient).
// Order       of a layer's backward and of DistributedDataParallel's buckets on one group is the same on all
//             ranks when their graphs are. With find_unused_parameters give one of the two a group of its own
//             (new_group).
// Fails       InvalidArgument: fewer than two dimensions, another number of channels; a single value per
//             channel on all ranks together; virtual ranks (job/virtual_ranks.h), whose batches never meet;
//             backward(create_graph = true), for there is no second
//             derivative; a process outside process_group. Otherwise as any collective. Messages name the
//             layer: convert_sync_batchnorm() knows its name, and name() sets it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <ostream>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep {

struct SyncBatchNormOptions {
  SyncBatchNormOptions(std::int64_t num_features)  // NOLINT(google-explicit-constructor): as libtorch's
      : num_features_(num_features) {}
  TORCH_ARG(std::int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(std::optional<double>, momentum) = 0.1;
  TORCH_ARG(bool, affine) = true;
  TORCH_ARG(bool, track_running_stats) = true;
  TORCH_ARG(std::optional<ProcessGroup>, process_group) = {};  // default: world(), looked up by each forward
  TORCH_ARG(std::string, name) = {};                           // for messages: "layer1.0.bn1"
};

class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, SyncBatchNormOptions> {
 public:
  using NormImplBase::NormImplBase;

  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;
};
TORCH_MODULE(SyncBatchNorm);

// What a layer does in training mode, for layers of one's own. Undefined tensors: not affine, not tracked.
// The running statistics become (1 - momentum) * running + momentum * batch, the variance of the batch
// without bias.
at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& running_mean,
                           const at::Tensor& running_var, const at::Tensor& weight, const at::Tensor& bias,
                           double momentum, double eps, const ProcessGroup& group,
                           const std::string& name = {});

// Over which group a layer that was made with `process_group` normalises now: nothing where that is this rank
// alone. Throws InvalidArgument in a process outside of it.
std::optional<ProcessGroup> group_to_normalise(const std::optional<ProcessGroup>& process_group);

}  // namespace lockstep
