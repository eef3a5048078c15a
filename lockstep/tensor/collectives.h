// The verbs of torch.distributed on tensors. Each is the verb of comm/collectives/ of the same name; read the contract there.
//
//   torch::Tensor x = torch::ones({2, 2}) * (dist::get_rank() + 1);
//   dist::all_reduce(x);                                              // 10 everywhere, with four ranks
//   auto work = dist::all_reduce(x, ReduceOp::AVG, dist::world(), /*async_op=*/true);
//   work.wait();
//
// Tensors     CPU, dense, any strides (a non-contiguous tensor is copied through a contiguous one), 0-d, empty, requires-grad (the
//             result is written outside autograd, as torch does). dtypes: float64/32/16, bfloat16, (u)int8..64, bool, complex64/128.
//             Anything else is an InvalidArgument that names it.
// Lifetime    a started operation holds its tensors.
// group       defaults to world().
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"

namespace lockstep {

Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::SUM, const ProcessGroup& group = world(),
                bool async_op = false);

Work broadcast(const at::Tensor& tensor, int root, const ProcessGroup& group = world(),
               bool async_op = false);

// outputs[r] has the shape and dtype of rank r's tensor; shapes may differ from rank to rank.
Work all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& tensor,
                const ProcessGroup& group = world(), bool async_op = false);

Work barrier(const ProcessGroup& group = world(), bool async_op = false);

Work isend(const at::Tensor& tensor, int destination, const ProcessGroup& group = world(), int tag = 0);
Work irecv(const at::Tensor& tensor, int source, const ProcessGroup& group = world(), int tag = 0);
void send(const at::Tensor& tensor, int destination, const ProcessGroup& group = world(), int tag = 0);
int recv(const at::Tensor& tensor, int source, const ProcessGroup& group = world(), int tag = 0);

// The element type below libtorch. Throws InvalidArgument for a dtype that collectives do not carry.
DType dtype_of(at::ScalarType type);

// A zeroed contiguous CPU tensor in memory on which `group`'s collectives copy nothing (gradient buckets live there).
at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype, const ProcessGroup& group = world());

}  // namespace lockstep
