// ColumnParallelLinear: a linear layer whose outputs are shared out over the ranks of a tensor-parallel
// group. Each rank holds the rows of the weight for its outputs ("columns" of its transpose, whence the
// name).
//
//   namespace tp = dist::tensor_parallel;
//   tp::ColumnParallelLinear fc1(1024, 4096, group);
//   tp::RowParallelLinear fc2(4096, 1024, group);
//   at::Tensor y = fc2(at::gelu(fc1(x)));                 // x and y whole on all ranks
//
//   const tp::ColumnParallelLinearOptions blocks{.blocks = {512, 128, 128}};
//   tp::ColumnParallelLinear qkv(512, 512 + 128 + 128, group, blocks);  // each rank: its heads of all three
//
// Weight      "weight" [out_features / ranks, in_features] and "bias" [out_features / ranks].
// Initial     values do not depend on the number of ranks: each rank draws the whole weight and keeps its
//             part (parameter_piece.h). All ranks need the same state of the random numbers, which
//             model_parallel_manual_seed() gives them. Without `init` they are those of torch::nn::Linear
//             with the same seed, to the bit; with `init` the bias is zero.
// Gradients   of the input are summed over the group, those of the weight are this rank's own. An
//             optimiser steps each piece where it is.
// Checkpoints model_state.h writes the pieces as parts of the whole weight.
// Fails       InvalidArgument: sizes below 1; outputs, or a block of them, that the ranks do not divide;
//             blocks that do not add up to the outputs. Otherwise parallel_linear.h.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/tensor_parallel/parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"

namespace lockstep::tensor_parallel {

struct ColumnParallelLinearOptions {
  bool bias = true;
  bool gather_output = false;      // the result is whole on all ranks
  bool sequence_parallel = false;  // the input is this rank's part along dimension 0
  WeightLayout layout = WeightLayout::OUT_IN;
  std::vector<std::int64_t> blocks = {};  // of outputs, each cut by itself; empty: one
  InitMethod init = {};                   // of the whole weight
};

class ColumnParallelLinearImpl : public torch::nn::Module, public HasPieces {
 public:
  ColumnParallelLinearImpl(std::int64_t in_features, std::int64_t out_features, const ProcessGroup& group,
                           ColumnParallelLinearOptions options = {});

  at::Tensor forward(const at::Tensor& input);
  std::vector<ParameterPiece> pieces() const override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  const std::int64_t in_features_, out_features_;
  const ColumnParallelLinearOptions options_;
  const ParallelLinear linear_;
};
TORCH_MODULE(ColumnParallelLinear);

}  // namespace lockstep::tensor_parallel
