// ParallelMLP: the two linear layers of a transformer, with GELU between them, shared out over the ranks of a
// tensor-parallel group.
//
//   namespace tp = dist::tensor_parallel;
//   tp::ParallelMLP mlp(tp::TransformerConfig{.hidden_size = 1024}, group);
//   at::Tensor y = mlp(x);                            // x and y: [..., 1024], one all_reduce each way
//
// Weights     "linear_fc1.weight", "linear_fc2.weight"; names and layout are the config's. The activation
//             is the tanh approximation of GELU, as in GPT-2.
// Sequence    Under sequence_parallel x and y are this rank's part of dimension 0.
// Fails       as ColumnParallelLinear.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/tensor_parallel/column_parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/row_parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/transformer_config.h"

namespace lockstep::tensor_parallel {

class ParallelMLPImpl : public torch::nn::Module {
 public:
  ParallelMLPImpl(const TransformerConfig& config, const ProcessGroup& group);

  at::Tensor forward(const at::Tensor& input);

  ColumnParallelLinear linear_fc1{nullptr};
  RowParallelLinear linear_fc2{nullptr};
};
TORCH_MODULE(ParallelMLP);

}  // namespace lockstep::tensor_parallel
