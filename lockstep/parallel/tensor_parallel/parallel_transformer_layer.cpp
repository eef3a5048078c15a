#include "lockstep/parallel/tensor_parallel/parallel_transformer_layer.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

#include "lockstep/parallel/tensor_parallel/mappings.h"
#include "lockstep/parallel/tensor_parallel/random.h"

namespace lockstep::tensor_parallel {

SequenceParallelLayerNormImpl::SequenceParallelLayerNormImpl(std::int64_t hidden_size, double epsilon,
                                                             bool sequence_parallel,
                                                             const ProcessGroup& group)
    : epsilon_(epsilon), sequence_parallel_(sequence_parallel), group_(group) {
  weight = register_parameter("weight", at::ones({hidden_size}));
  bias = register_parameter("bias", at::zeros({hidden_size}));
}

at::Tensor SequenceParallelLayerNormImpl::forward(const at::Tensor& input) {
  // the identity forward; backward sums the ranks' gradients
  const auto shared = [this](const at::Tensor& parameter) {
    return sequence_parallel_ ? copy_to_tensor_model_parallel_region(parameter, group_) : parameter;
  };
  return at::layer_norm(input, {weight.size(0)}, shared(weight), shared(bias), epsilon_);
}

at::Tensor hidden_dropout(const at::Tensor& input, double probability, bool is_training,
                          bool sequence_parallel, const ProcessGroup& group) {
  if (!is_training || probability == 0) return input;
  std::optional<ForkedRandom> forked;
  if (sequence_parallel) forked.emplace(group, input.device());
  return at::dropout(input, probability, /*train=*/true);
}

ParallelTransformerLayerImpl::ParallelTransformerLayerImpl(TransformerConfig config,
                                                           const ProcessGroup& group)
    : config_(std::move(config)), group_(group) {
  const auto norm = [&] {
    return SequenceParallelLayerNorm(config_.hidden_size, config_.layernorm_epsilon,
                                     config_.sequence_parallel, group);
  };
  input_layernorm = register_module(config_.names.input_layernorm, norm());
  self_attention = register_module(config_.names.self_attention, ParallelSelfAttention(config_, group));
  pre_mlp_layernorm = register_module(config_.names.pre_mlp_layernorm, norm());
  mlp = register_module(config_.names.mlp, ParallelMLP(config_, group));
}

at::Tensor ParallelTransformerLayerImpl::forward(const at::Tensor& input) {
  const at::Tensor attended = input + dropped(self_attention(input_layernorm(input)));
  return attended + dropped(mlp(pre_mlp_layernorm(attended)));
}

at::Tensor ParallelTransformerLayerImpl::dropped(const at::Tensor& input) const {
  return hidden_dropout(input, config_.hidden_dropout, is_training(), config_.sequence_parallel, group_);
}

}  // namespace lockstep::tensor_parallel
