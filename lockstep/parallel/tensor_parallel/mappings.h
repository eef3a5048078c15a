// The mappings between a tensor that all ranks of a tensor-parallel group hold and one of which each holds a
// part, as functions through which gradients flow. Names and meaning are Megatron's.
//
//   namespace tp = dist::tensor_parallel;
//   at::Tensor h = tp::copy_to_tensor_model_parallel_region(x, group);
//   at::Tensor y = tp::reduce_from_tensor_model_parallel_region(h.matmul(w), group);  // w: own columns
//
//   function                                    forward              backward
//   copy_to_tensor_model_parallel_region        identity             all_reduce
//   reduce_from_tensor_model_parallel_region    all_reduce           identity
//   scatter_to_tensor_model_parallel_region     own part (last dim)  all_gather (last dim)
//   gather_from_tensor_model_parallel_region    all_gather (last)    own part (last dim)
//   scatter_to_sequence_parallel_region         own part (dim 0)     all_gather (dim 0)
//   gather_from_sequence_parallel_region        all_gather (dim 0)   reduce_scatter (dim 0)
//   reduce_scatter_to_sequence_parallel_region  reduce_scatter (0)   all_gather (dim 0)
//
// Parts       are equal and in rank order. Dimension 0 is that of the sequence in Megatron's [s, b, h];
//             any dimension 0 of tokens will do.
// Gradients   are those of one process, if every rank computes the same loss behind the mappings. After
//             the gathers, each rank's gradient of the whole is taken for all of it, once. If what uses
//             the gathered sequence gives each rank a part of the gradient, as a ColumnParallelLinear
//             does, the parts must be added: gather_from_sequence_parallel_region does so, unless
//             tensor_parallel_output_grad is false.
// Second      derivatives work: backward is made of these functions.
// Who         every rank of `group`, in forward and in backward, in the same order. In a group of one
//             rank all are the identity, without a call.
// Fails       InvalidArgument that names function, group and sizes: a dimension that the number of ranks
//             does not divide; a tensor without that dimension; a process outside the group. Otherwise as
//             tensor/collectives.h.
// Source      Shoeybi et al., 2019, arXiv 1909.08053 (f and g); Korthikanti et al., 2022, arXiv
//             2205.05198 (the sequence).
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"

namespace lockstep::tensor_parallel {

at::Tensor copy_to_tensor_model_parallel_region(const at::Tensor& input, const ProcessGroup& group);
at::Tensor reduce_from_tensor_model_parallel_region(const at::Tensor& input, const ProcessGroup& group);
at::Tensor scatter_to_tensor_model_parallel_region(const at::Tensor& input, const ProcessGroup& group);
at::Tensor gather_from_tensor_model_parallel_region(const at::Tensor& input, const ProcessGroup& group);

at::Tensor scatter_to_sequence_parallel_region(const at::Tensor& input, const ProcessGroup& group);
at::Tensor gather_from_sequence_parallel_region(const at::Tensor& input, const ProcessGroup& group,
                                                bool tensor_parallel_output_grad = true);
at::Tensor reduce_scatter_to_sequence_parallel_region(const at::Tensor& input, const ProcessGroup& group);

}  // namespace lockstep::tensor_parallel
