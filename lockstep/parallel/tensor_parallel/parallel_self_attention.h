// ParallelSelfAttention: self-attention whose heads are shared out over the ranks of a tensor-parallel group.
//
//   namespace tp = dist::tensor_parallel;
//   const tp::TransformerConfig config{.hidden_size = 1024, .num_attention_heads = 16};
//   tp::ParallelSelfAttention attention(config, group);
//   at::Tensor y = attention(x);                      // x and y: [batch, sequence, 1024]
//
// Heads       of queries, keys and values that belong together are on one rank. With fewer
//             num_query_groups than heads, each group of keys and values serves several heads of queries
//             (GQA; one group: MQA).
// Weights     "linear_qkv.weight" has all queries first, then all keys, then all values;
//             "linear_proj.weight". The names and the layout are the config's.
// Dropout     of the attention's weights differs from rank to rank (random.h).
// Sequence    Under sequence_parallel x and y are this rank's part of dimension 0. The attention itself
//             has the whole sequence.
// Context     With the config's context_group the sequence of x is this rank's part of a longer one, which
//             the ranks of that group share: keys and values travel between them.
// Fails       InvalidArgument: heads that do not divide hidden_size; groups that do not divide the heads;
//             heads or groups that the ranks do not divide; an input of another shape.
// Source      Shoeybi et al., 2019, arXiv 1909.08053; Ainslie et al., 2023, arXiv 2305.13245 (GQA).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/tensor_parallel/column_parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/row_parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/transformer_config.h"

namespace lockstep::tensor_parallel {

class ParallelSelfAttentionImpl : public torch::nn::Module {
 public:
  ParallelSelfAttentionImpl(TransformerConfig config, const ProcessGroup& group);

  at::Tensor forward(const at::Tensor& input);

  ColumnParallelLinear linear_qkv{nullptr};
  RowParallelLinear linear_proj{nullptr};

 private:
  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const;

  const TransformerConfig config_;
  const ProcessGroup group_;
};
TORCH_MODULE(ParallelSelfAttention);

}  // namespace lockstep::tensor_parallel
