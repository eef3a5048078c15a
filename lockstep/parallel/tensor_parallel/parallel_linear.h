// The two linear maps of tensor parallelism as functions, for layers and for tied weights: each is a product
// of matrices and the exchange of what it leaves in parts.
//
//   const tp::ParallelLinear linear{.group = group};
//   at::Tensor h = tp::column_parallel_linear(x, weight, bias, linear);   // [..., out / ranks]
//   at::Tensor y = tp::row_parallel_linear(h, weight_2, bias_2, linear);  // [..., out]
//
//                            forward                  backward
//   column_parallel_linear                            all_reduce of the input's gradient
//     sequence_parallel      all_gather of the input  all_gather again, reduce_scatter of the gradient
//   row_parallel_linear      all_reduce of the result
//     sequence_parallel      reduce_scatter           all_gather of the result's gradient
//
// In place    Products are computed straight into memory that the group's collectives use in place
//             (exchange_memory.h). Between ranks of one machine an all_reduce then copies nothing.
// Overlap     In backward the exchange of the input's gradient has started before the product for the
//             weight's gradient, and is waited for behind it. So ranks need not arrive together, and over
//             connections the bytes travel meanwhile.
// Bias        of the row-parallel map enters the sum once, through the product of the group's rank 0, in
//             place of a pass over the result on every rank. Under sequence_parallel each rank has the
//             whole gradient of it, without an exchange of its own.
// Memory      Under sequence_parallel the column-parallel map keeps its part of the input, and gathers
//             the whole again in backward.
// Autocast    takes input, weight and bias to its dtype, as for torch::nn::Linear.
// Fails       InvalidArgument: backward(create_graph = true), because there is no second derivative;
//             sizes as mappings.h. In a group of one rank both are at::linear.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"

namespace lockstep::tensor_parallel {

enum class WeightLayout {
  OUT_IN,  // [out, in], of torch::nn::Linear
  IN_OUT,  // its transpose, of Hugging Face's Conv1D and models::Conv1D
};

struct ParallelLinear {
  ProcessGroup group;
  bool sequence_parallel = false;
  WeightLayout layout = WeightLayout::OUT_IN;
};

// `weight` and `bias` (or an undefined tensor) are this rank's outputs. `input` is the whole input; under
// sequence_parallel this rank's part of it along dimension 0.
at::Tensor column_parallel_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                  const ParallelLinear& linear);

// `input` and `weight` are this rank's inputs; `bias` is whole. The result is whole; under sequence_parallel
// this rank's part along dimension 0.
at::Tensor row_parallel_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                               const ParallelLinear& linear);

}  // namespace lockstep::tensor_parallel
