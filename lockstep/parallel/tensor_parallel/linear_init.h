// LinearInit: the first values of a linear layer's whole weight and bias. By default they are those of
// torch::nn::Linear, drawn in its order.
//
//   const LinearInit init{in_features, layout, options.init};
//   weight = register_parameter("weight", draw_piece(partition, init.weight()));
//   bias = register_parameter("bias", draw_piece(partition_of_bias, init.bias()));
#pragma once

#include <torch/nn/init.h>

#include <cmath>
#include <cstdint>

#include "lockstep/parallel/tensor_parallel/parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"

namespace lockstep::tensor_parallel {

struct LinearInit {
  std::int64_t in_features;
  WeightLayout layout;
  InitMethod given;  // of the weight; the bias is then zero

  InitMethod weight() const {
    if (given) return given;
    return [transposed = layout == WeightLayout::IN_OUT](const at::Tensor& whole) {
      torch::nn::init::kaiming_uniform_(transposed ? whole.t() : whole, std::sqrt(5));
    };
  }
  InitMethod bias() const {
    if (given) return [](const at::Tensor& whole) { whole.zero_(); };
    const double bound = 1 / std::sqrt(in_features);
    return [bound](const at::Tensor& whole) { torch::nn::init::uniform_(whole, -bound, bound); };
  }
};

}  // namespace lockstep::tensor_parallel
