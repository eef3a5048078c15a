// The collectives of torch.distributed on tensors, with its names, argument order and meaning. Each is the
// verb of comm/collectives/ of the same name; the contract is there.
//
//   torch::Tensor x = torch::ones({2, 2}) * (dist::get_rank() + 1);
//   dist::all_reduce(x);                                              // 10 everywhere, with four ranks
//   auto work = dist::all_reduce(x, dist::ReduceOp::AVG, dist::world(), /*async_op=*/true);
//   work.wait();
//
// Who         every rank of `group` (default: world()). A process outside the group is warned once and
//             returns at once with a finished Work, having done nothing.
// src, dst    ranks of the whole job, as in torch; GroupRank{1} is torch's group_src=1 (peer.h).
// Tensors     CPU, dense, any strides, 0-d, empty, requires-grad (results are written outside autograd, as
//             torch does), conjugate and negative views. dtypes: float64/32/16, bfloat16, (u)int8..64, bool,
//             complex64/128. Elements meet by index, so strides may differ from rank to rank. A result must
//             not overlap itself (expand()). Anything else is an InvalidArgument that says what and names the
//             verb.
// Copies      a tensor that is not contiguous travels through a contiguous copy. Its result is copied back by
//             wait() and by is_completed(): when a started Work of such a tensor is dropped before, the
//             tensor does not change (logged).
// Lifetime    a started operation holds its tensors.
// Blocks      until the result is here, unless async_op. Fails: InvalidArgument before anything is sent;
//             PeerLost, Mismatch, Timeout, Aborted while waiting.
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

// Every rank gets the combination of all, in place. Where this differs from Gloo: AVG of float16 does not
// overflow (the sum is kept in float32), NaN always wins in MIN and MAX, and uint16, uint32, uint64 and int16
// are carried. Sparse COO tensors: SUM only. The tensor becomes the coalesced sum. Sizes, sparse_dim and
// dtype must agree; how many elements each rank has need not. Blocks even with async_op.
Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::SUM, const ProcessGroup& group = world(),
                bool async_op = false);

// All of them in one exchange; same dtype, dense.
Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::SUM,
                          const ProcessGroup& group = world(), bool async_op = false);

// `dst` gets the combination, in place; the tensors of the others keep their values.
Work reduce(const at::Tensor& tensor, Peer dst, ReduceOp op = ReduceOp::SUM,
            const ProcessGroup& group = world(), bool async_op = false);

// tensor_list[r] gets rank r's tensor and has its shape; shapes may differ from rank to rank.
Work all_gather(const std::vector<at::Tensor>& tensor_list, const at::Tensor& tensor,
                const ProcessGroup& group = world(), bool async_op = false);

// `output` has size() times the elements of `input`, in rank order: concatenated or stacked along dimension
// 0.
Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                            const ProcessGroup& group = world(), bool async_op = false);

// gather_list[r] of `dst` gets rank r's tensor. The list is given on `dst` and must be empty elsewhere.
Work gather(const at::Tensor& tensor, const std::vector<at::Tensor>& gather_list = {}, Peer dst = 0,
            const ProcessGroup& group = world(), bool async_op = false);

// Rank r gets scatter_list[r] of `src`. The list is given on `src` and must be empty elsewhere.
Work scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& scatter_list = {}, Peer src = 0,
             const ProcessGroup& group = world(), bool async_op = false);

// Rank r gets the combination of everybody's input_list[r].
Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& input_list,
                    ReduceOp op = ReduceOp::SUM, const ProcessGroup& group = world(), bool async_op = false);

// The same with the list concatenated or stacked along dimension 0: `input` has size() times the elements of
// `output`.
Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::SUM,
                           const ProcessGroup& group = world(), bool async_op = false);

// output_tensor_list[r] gets rank r's input_tensor_list[this rank]; shapes that belong together are equal.
Work all_to_all(const std::vector<at::Tensor>& output_tensor_list,
                const std::vector<at::Tensor>& input_tensor_list, const ProcessGroup& group = world(),
                bool async_op = false);

// The same with the lists concatenated along dimension 0. Split sizes are rows per rank; empty: equal parts.
Work all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& output_split_sizes = {},
                       const std::vector<std::int64_t>& input_split_sizes = {},
                       const ProcessGroup& group = world(), bool async_op = false);

Work barrier(const ProcessGroup& group = world(), bool async_op = false);

// The element type below libtorch. Throws InvalidArgument for a dtype that collectives do not carry.
DType dtype_of(at::ScalarType type);

// A zeroed contiguous CPU tensor in memory on which collectives of any group of this rank copy nothing
// (gradient buckets live there; docs/performance.md). Over tcp and alone: plain memory. Freed with its last
// reference, before or after the group, also after a failure, when the memory is not used again as long as a
// stopped rank might write to it.
at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype, const ProcessGroup& group = world());

}  // namespace lockstep
