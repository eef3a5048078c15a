#include "lockstep/parallel/pipeline/deferred_batch_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/var_mean.h>

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

thread_local bool is_paused = false;

template <typename Act> void for_each_layer(torch::nn::Module* module, const Act& act) {
  if (module == nullptr) return;
  if (auto* const layer = module->as<DeferredBatchNormImpl>()) act(*layer);
  for (const auto& child : module->modules(/*include_self=*/false))
    if (auto* const layer = child->as<DeferredBatchNormImpl>()) act(*layer);
}

}  // namespace

void DeferredBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
  throw InvalidArgument(lockstep::str("DeferredBatchNorm: the input is ", input.sizes(),
                                      "; it has at least two dimensions, "
                                      "and the second is the number of channels, ",
                                      options.num_features()));
}

at::Tensor DeferredBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  const bool by_batch = is_training() || !running_mean.defined();
  if (is_training() && running_mean.defined() && !is_paused) add(input.detach());
  // A training forward without buffers normalises by the batch and moves nothing.
  return at::batch_norm(input, weight, bias, by_batch ? at::Tensor() : running_mean,
                        by_batch ? at::Tensor() : running_var, by_batch, /*momentum=*/0, options.eps(),
                        /*cudnn_enabled=*/true);
}

// Combines the micro-batch's count, mean and squared deviations with those of the micro-batches before.
void DeferredBatchNormImpl::add(const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  const double count = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
  if (count == 0) return;
  auto [variance, mean] = at::var_mean(input.to(at::kDouble), dims, /*unbiased=*/false);
  const at::Tensor deviations = variance * count;
  if (count_ == 0) {
    mean_ = mean;
    deviations_ = deviations;
  } else {
    const at::Tensor distance = mean - mean_;
    const double all = count_ + count;
    deviations_ = deviations_ + deviations + distance * distance * (count_ * count / all);
    mean_ = mean_ + distance * (count / all);
  }
  count_ += count;
}

void DeferredBatchNormImpl::commit() {
  if (count_ == 0) return;
  const at::NoGradGuard no_grad;
  num_batches_tracked += 1;
  const double momentum = options.momentum()
                              ? *options.momentum()
                              : 1 / static_cast<double>(num_batches_tracked.item<std::int64_t>());
  const auto move = [&](at::Tensor& running, const at::Tensor& batch) {
    running.mul_(1 - momentum).add_(batch.to(running.scalar_type()), momentum);
  };
  move(running_mean, mean_);
  move(running_var, deviations_ / std::max(count_ - 1, 1.0));
  discard();
}

void DeferredBatchNormImpl::discard() {
  count_ = 0;
  mean_ = at::Tensor();
  deviations_ = at::Tensor();
}

void DeferredBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::DeferredBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ")";
}

DeferredBatchNormPause::DeferredBatchNormPause() : before_(std::exchange(is_paused, true)) {}

DeferredBatchNormPause::~DeferredBatchNormPause() { is_paused = before_; }

void commit_deferred_batch_norms(torch::nn::Module* module) {
  for_each_layer(module, [](DeferredBatchNormImpl& layer) { layer.commit(); });
}

void discard_deferred_batch_norms(torch::nn::Module* module) {
  for_each_layer(module, [](DeferredBatchNormImpl& layer) { layer.discard(); });
}

}  // namespace lockstep
