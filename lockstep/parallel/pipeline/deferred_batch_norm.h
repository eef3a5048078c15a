// DeferredBatchNorm: batch normalisation whose running statistics are those of the whole batch, although a
// pipeline cuts the batch into micro-batches.
//
//   torch::nn::Sequential stage(torch::nn::Conv2d(3, 64, 3), dist::DeferredBatchNorm(64), torch::nn::ReLU());
//
// Forward     In training a micro-batch is normalised by its own mean and variance, as by BatchNorm. Its
//             number of values, mean and squared deviations are added up.
// Commit      At the end of Pipeline::step() the running statistics move once, by the mean and the unbiased
//             variance of all micro-batches together: those of BatchNorm on the whole batch. A step that
//             fails moves nothing. In a loop without a Pipeline, call commit() after the batch.
// Recompute   The second forward of a micro-batch adds nothing.
// Names       of parameters and buffers are BatchNorm's, so each reads the other's state dict. In eval mode
//             it is BatchNorm.
// Options     of torch::nn::BatchNorm. momentum(std::nullopt) is the cumulative average over batches.
// Throws      InvalidArgument: fewer than two dimensions, or another number of channels.
// Source      torchgpipe's DeferredBatchNorm, which commits the biased variance; torch's BatchNorm and this
//             layer commit the unbiased one. Sums: Chan et al., 1979 (sync_batch_norm.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <ostream>

namespace lockstep {

class DeferredBatchNormImpl
    : public torch::nn::NormImplBase<0, DeferredBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  using NormImplBase::NormImplBase;

  // (N, C), (N, C, L), (N, C, H, W), ...
  at::Tensor forward(const at::Tensor& input);
  // Moves the running statistics by what the forwards since the last commit saw, if anything.
  void commit();
  void discard();  // forgets it instead
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  void add(const at::Tensor& input);

  double count_ = 0;              // values per channel
  at::Tensor mean_, deviations_;  // float64 [C]: of these values; the sum of squared deviations
};
TORCH_MODULE(DeferredBatchNorm);

// While one lives, forwards of this thread add nothing.
class DeferredBatchNormPause {
 public:
  DeferredBatchNormPause();
  ~DeferredBatchNormPause();
  DeferredBatchNormPause(const DeferredBatchNormPause&) = delete;
  DeferredBatchNormPause& operator=(const DeferredBatchNormPause&) = delete;

 private:
  const bool before_;
};

// For all such layers of a module and those below it. Null: none.
void commit_deferred_batch_norms(torch::nn::Module* module);
void discard_deferred_batch_norms(torch::nn::Module* module);

}  // namespace lockstep
