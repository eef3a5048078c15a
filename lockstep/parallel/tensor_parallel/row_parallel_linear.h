// RowParallelLinear: a linear layer whose inputs are shared out over the ranks of a tensor-parallel group.
// Each rank holds the columns of the weight for its inputs; the ranks' products are added.
//
//   namespace tp = dist::tensor_parallel;
//   tp::RowParallelLinear fc2(4096, 1024, group);         // behind a ColumnParallelLinear of 4096 outputs
//   at::Tensor y = fc2(h);                                // h [..., 4096 / ranks], y [..., 1024]
//
// Weight      "weight" [out_features, in_features / ranks] and "bias" [out_features], whole on every
//             rank.
// Input       is this rank's part of the last dimension. With input_is_parallel = false it is whole, and
//             each rank takes its part.
// Initial     values, gradients and checkpoints as for ColumnParallelLinear. The gradient of the bias is
//             the same on all ranks, to the bit.
// Fails       InvalidArgument: sizes below 1; inputs that the ranks do not divide; sequence_parallel with
//             an input that is not parallel. Otherwise parallel_linear.h.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/tensor_parallel/parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"

namespace lockstep::tensor_parallel {

struct RowParallelLinearOptions {
  bool bias = true;
  bool input_is_parallel = true;
  bool sequence_parallel = false;  // the result is this rank's part along dimension 0
  WeightLayout layout = WeightLayout::OUT_IN;
  InitMethod init = {};  // of the whole weight
};

class RowParallelLinearImpl : public torch::nn::Module, public HasPieces {
 public:
  RowParallelLinearImpl(std::int64_t in_features, std::int64_t out_features, const ProcessGroup& group,
                        RowParallelLinearOptions options = {});

  at::Tensor forward(const at::Tensor& input);
  std::vector<ParameterPiece> pieces() const override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  const std::int64_t in_features_, out_features_;
  const RowParallelLinearOptions options_;
  const ParallelLinear linear_;
};
TORCH_MODULE(RowParallelLinear);

}  // namespace lockstep::tensor_parallel
