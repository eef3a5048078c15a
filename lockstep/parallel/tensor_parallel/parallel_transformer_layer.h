// ParallelTransformerLayer: a transformer's layer with its heads and its MLP shared out over the ranks of a
// tensor-parallel group.
//
//   namespace tp = dist::tensor_parallel;
//   const tp::TransformerConfig config{.hidden_size = 1024, .num_attention_heads = 16};
//   tp::ParallelTransformerLayer layer(config, group);
//   at::Tensor y = layer(x);                  // x += attention(norm(x)); x += mlp(norm(x)); both all_reduced
//
// Sequence    With sequence_parallel x and y are this rank's part of dimension 0. Norms, dropout and sums
//             then work on parts, and so do their activations. Each all_reduce becomes an all_gather and
//             a reduce_scatter. Enter by scatter_to_sequence_parallel_region, leave by
//             gather_from_sequence_parallel_region (mappings.h).
// Norms       hold whole weights. Under sequence_parallel a rank sees its part of the tokens alone, so
//             backward adds the gradients of these weights over the group: nothing is left to do before a
//             step.
// Dropout     between layers is equal on all ranks; under sequence_parallel, and within the attention,
//             each rank has its own (random.h).
// Weights     have Megatron Core's names, or those of the config. The layers of models::GPT2 are such
//             layers (models/tensor_parallel_gpt2.h).
// Fails       as ParallelSelfAttention and ParallelMLP.
// Source      Shoeybi et al., 2019, arXiv 1909.08053; Korthikanti et al., 2022, arXiv 2205.05198.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/tensor_parallel/parallel_mlp.h"
#include "lockstep/parallel/tensor_parallel/parallel_self_attention.h"
#include "lockstep/parallel/tensor_parallel/transformer_config.h"

namespace lockstep::tensor_parallel {

// torch::nn::LayerNorm over the last dimension, for tokens of which each rank holds a part: the gradients of
// "weight" and "bias" are those of all tokens, on every rank.
class SequenceParallelLayerNormImpl : public torch::nn::Module {
 public:
  // Without `sequence_parallel` each rank has all tokens, and nothing is exchanged.
  SequenceParallelLayerNormImpl(std::int64_t hidden_size, double epsilon, bool sequence_parallel,
                                const ProcessGroup& group);

  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight;
  at::Tensor bias;

 private:
  const double epsilon_;
  const bool sequence_parallel_;
  const ProcessGroup group_;
};
TORCH_MODULE(SequenceParallelLayerNorm);

// Dropout of activations between layers: equal on all ranks, or of a rank's own part of the sequence.
at::Tensor hidden_dropout(const at::Tensor& input, double probability, bool is_training,
                          bool sequence_parallel, const ProcessGroup& group);

class ParallelTransformerLayerImpl : public torch::nn::Module {
 public:
  ParallelTransformerLayerImpl(TransformerConfig config, const ProcessGroup& group);

  at::Tensor forward(const at::Tensor& input);

  SequenceParallelLayerNorm input_layernorm{nullptr};
  ParallelSelfAttention self_attention{nullptr};
  SequenceParallelLayerNorm pre_mlp_layernorm{nullptr};
  ParallelMLP mlp{nullptr};

 private:
  at::Tensor dropped(const at::Tensor& input) const;

  const TransformerConfig config_;
  const ProcessGroup group_;
};
TORCH_MODULE(ParallelTransformerLayer);

}  // namespace lockstep::tensor_parallel
