// SyncBatchNorm: batch normalisation over the batches of all ranks together. N ranks with a share each then
// train as one process with the whole batch. Its statistics are those of torch::nn::BatchNorm1d, 2d and 3d on
// the joined batch.
//
//   dist::SyncBatchNorm norm(dist::SyncBatchNormOptions(64).momentum(0.1));
//   at::Tensor y = norm->forward(x);  // x: (N, 64), (N, 64, L), (N, 64, H, W), ...
//   dist::convert_sync_batchnorm(*net);  // a model that has BatchNorm: convert_sync_batchnorm.h
//
// Who         Every rank of process_group, in training mode, with the same layers in the same order, in
//             forward and backward. Channels must agree; batches need not. A rank's statistics are weighted
//             by its number of values. A rank with an empty batch takes part, too. (It also calls backward on
//             a value that depends on the output.) In eval mode, for one rank, and before
//             init_process_group(), nothing is communicated: then it is libtorch's batch_norm.
// Gradients   of the input are those of the joined batch. Those of weight and bias are this rank's share,
//             which DistributedDataParallel averages, as in Python. If each loss is a mean over a rank's
//             share and the shares are equal, the weights get the gradient of the mean over all.
// Buffers     are equal on all ranks. momentum(std::nullopt) is the cumulative average. Names are
//             BatchNorm's, so a state dict of one fits the other, also from Python.
// Numbers     The ranks' counts, means and sums of squared deviations are combined in float64 (Chan et al.,
//             "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979), in the same
//             order everywhere. So large squares are never subtracted. float16 and bfloat16 inputs are
//             normalised in float32.
// Costs       Two collectives per layer and step: an all_gather of 2C + 1 doubles in forward, an all_reduce
//             of 2C in backward (none if the input needs no gradient).
// Order       If a layer's backward and DistributedDataParallel's buckets use one group, their calls have the
//             same order on all ranks as long as the graphs are the same. With find_unused_parameters give
//             one of the two a group of its own (new_group).
// Fails       InvalidArgument: fewer than two dimensions, another number of channels; a single value per
//             channel on all ranks together; virtual ranks (job/virtual_ranks.h), because their batches never
//             meet; backward(create_graph = true), because there is no second derivative; a process outside
//             process_group. Otherwise as any collective. Messages name the layer: convert_sync_batchnorm()
//             knows its name, and name() sets it.
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

// The function of a layer in training mode, for layers of a program's own. Undefined tensors mean: not
// affine, not tracked. The running statistics become (1 - momentum) * running + momentum * batch, with the
// unbiased variance of the batch.
at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& running_mean,
                           const at::Tensor& running_var, const at::Tensor& weight, const at::Tensor& bias,
                           double momentum, double eps, const ProcessGroup& group,
                           const std::string& name = {});

// The group over which a layer with `process_group` normalises now; none if that is this rank alone. Throws
// InvalidArgument in a process outside of it.
std::optional<ProcessGroup> group_to_normalise(const std::optional<ProcessGroup>& process_group);

}  // namespace lockstep
