// The collectives of torch.distributed on tensors, with its names, argument order and meaning. Each function
// is the verb of the same name in comm/collectives/, whose header has the contract.
//
//   torch::Tensor x = torch::ones({2, 2}) * (dist::get_rank() + 1);
//   dist::all_reduce(x);                                              // 10 everywhere, with four ranks
//   auto work = dist::all_reduce(x, dist::ReduceOp::AVG, dist::world(), /*async_op=*/true);
//   work.wait();
//
// Who         every rank of `group` (default: world()). A process outside the group logs one warning, does
//             nothing, and returns a finished Work at once.
// src, dst    ranks of the whole job, as in torch. GroupRank{1} is torch's group_src=1 (peer.h).
// Tensors     CPU, dense, any strides, 0-d, empty, conjugate and negative views. A result may be written to a
//             tensor that requires a gradient, outside autograd, as in torch. dtypes: float64/32/16,
//             bfloat16, (u)int8..64, bool, complex64/128. Elements correspond by index, so strides may differ
//             from rank to rank. A result must not overlap itself (expand()). Any other tensor is an
//             InvalidArgument that names the reason and the verb.
// Copies      A tensor that is not contiguous travels through a contiguous copy. wait() and is_completed()
//             copy the result back. If the program drops such a Work before, the tensor does not change, and
//             a warning is logged.
// Lifetime    A started operation holds its tensors.
// Blocks      until the result is complete, unless async_op.
// Fails       InvalidArgument before anything is sent; PeerLost, Mismatch, Timeout, Aborted while waiting.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <vector>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"
#include "lockstep/tensor/point_to_point.h"

namespace lockstep {

// Every rank gets the tensor of `src`.
Work broadcast(const at::Tensor& tensor, Peer src, const ProcessGroup& group = world(),
               bool async_op = false);

// Every rank gets the combination of all tensors, in place. There are three differences from Gloo. AVG of
// float16 does not overflow, because the sum is kept in float32. NaN always wins in MIN and MAX. uint16,
// uint32, uint64 and int16 are supported. For sparse COO tensors only SUM is supported. The tensor becomes
// the coalesced sum. Sizes, sparse_dim and dtype must agree; the numbers of elements need not. The sparse
// form blocks even with async_op.
Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::SUM, const ProcessGroup& group = world(),
                bool async_op = false);

// Reduces all tensors in one exchange. They must have one dtype and be dense.
Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::SUM,
                          const ProcessGroup& group = world(), bool async_op = false);

// `dst` gets the combination, in place. The tensors of other ranks keep their values.
Work reduce(const at::Tensor& tensor, Peer dst, ReduceOp op = ReduceOp::SUM,
            const ProcessGroup& group = world(), bool async_op = false);

// tensor_list[r] gets rank r's tensor and has its shape. Shapes may differ from rank to rank.
Work all_gather(const std::vector<at::Tensor>& tensor_list, const at::Tensor& tensor,
                const ProcessGroup& group = world(), bool async_op = false);

// `output` has size() times the elements of `input`, in rank order: concatenated or stacked along dimension
// 0.
Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                            const ProcessGroup& group = world(), bool async_op = false);

// gather_list[r] of `dst` gets rank r's tensor. The list is given on `dst` and must be empty on other ranks.
Work gather(const at::Tensor& tensor, const std::vector<at::Tensor>& gather_list = {}, Peer dst = 0,
            const ProcessGroup& group = world(), bool async_op = false);

// Rank r gets scatter_list[r] of `src`. The list is given on `src` and must be empty on other ranks.
Work scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& scatter_list = {}, Peer src = 0,
             const ProcessGroup& group = world(), bool async_op = false);

// Rank r gets the combination of all ranks' input_list[r].
Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& input_list,
                    ReduceOp op = ReduceOp::SUM, const ProcessGroup& group = world(), bool async_op = false);

// The same with the list concatenated or stacked along dimension 0: `input` has size() times the elements of
// `output`.
Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::SUM,
                           const ProcessGroup& group = world(), bool async_op = false);

// output_tensor_list[r] gets rank r's input_tensor_list[this rank]. Both must have the same shape.
Work all_to_all(const std::vector<at::Tensor>& output_tensor_list,
                const std::vector<at::Tensor>& input_tensor_list, const ProcessGroup& group = world(),
                bool async_op = false);

// The same with the lists concatenated along dimension 0. Split sizes are rows per rank; empty: equal parts.
Work all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& output_split_sizes = {},
                       const std::vector<std::int64_t>& input_split_sizes = {},
                       const ProcessGroup& group = world(), bool async_op = false);

Work barrier(const ProcessGroup& group = world(), bool async_op = false);

// The element type of collectives. Throws InvalidArgument for a dtype that collectives do not support.
DType dtype_of(at::ScalarType type);

// Returns a zeroed contiguous CPU tensor in the group's memory. Collectives of any group of this rank copy
// nothing there (gradient buckets use it; docs/performance.md). With tcp, and for one rank, it is plain
// memory. It is freed with its last reference, before or after the group. After a failure, the memory is not
// reused while a stopped rank might still write to it.
at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype, const ProcessGroup& group = world());

}  // namespace lockstep
