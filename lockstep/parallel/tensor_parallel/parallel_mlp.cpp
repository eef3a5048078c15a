#include "lockstep/parallel/tensor_parallel/parallel_mlp.h"

#include <ATen/ops/gelu.h>

namespace lockstep::tensor_parallel {

ParallelMLPImpl::ParallelMLPImpl(const TransformerConfig& config, const ProcessGroup& group) {
  const ColumnParallelLinearOptions fc1{
      .sequence_parallel = config.sequence_parallel, .layout = config.layout, .init = config.init_method};
  const RowParallelLinearOptions fc2{
      .sequence_parallel = config.sequence_parallel, .layout = config.layout, .init = config.output_init()};
  linear_fc1 = register_module(config.names.linear_fc1,
                               ColumnParallelLinear(config.hidden_size, config.ffn_size(), group, fc1));
  linear_fc2 = register_module(config.names.linear_fc2,
                               RowParallelLinear(config.ffn_size(), config.hidden_size, group, fc2));
}

at::Tensor ParallelMLPImpl::forward(const at::Tensor& input) {
  return linear_fc2(at::gelu(linear_fc1(input), /*approximate=*/"tanh"));
}

}  // namespace lockstep::tensor_parallel
