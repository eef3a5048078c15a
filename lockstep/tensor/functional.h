// Collectives through which gradients flow, with the names, argument order and meaning of
// torch.distributed.nn.functional.
//
//   namespace F = lockstep::functional;
//   at::Tensor y = F::all_reduce(x);                       // x stays as it is
//   loss_of(y).backward();                                 // x.grad is the sum of all ranks' gradients of y
//
// Forward     The verb of the same name in collectives.h, out of place: results are new tensors.
// Backward    The adjoint, so that the gradients are those of one process that computes everything:
//               all_reduce <-> all_reduce (SUM, AVG)    all_gather <-> reduce_scatter
//               broadcast <-> reduce                    gather <-> scatter          all_to_all <-> all_to_all
//             Every backward is made of the functions here, so a backward with create_graph works too.
// Who         Every rank of `group`, in forward and backward. Each rank calls backward() through its result,
//             in the same order of calls. So either all ranks pass tensors that require gradients, or none
//             does. That holds even if a rank's values do not matter (the receivers of broadcast and
//             scatter). If a rank does not call, the other ranks fail at the deadline and name it.
// Results     of reduce and gather are zeros on all ranks but the receiver. Gradients of those zeros are
//             dropped.
// Differs     from torch: tensors named `output` give sizes and dtype, and are not written. The function
//             returns the result.
// Fails       InvalidArgument: a process outside the group; an operator other than SUM or AVG where gradients
//             are needed. (No single collective gives the gradients of MIN, MAX and PRODUCT.) Otherwise as
//             collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"

namespace lockstep::functional {

at::Tensor all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::SUM,
                      const ProcessGroup& group = world());

at::Tensor broadcast(const at::Tensor& tensor, Peer src, const ProcessGroup& group = world());

// The result is zeros on every rank but `dst`.
at::Tensor reduce(const at::Tensor& tensor, Peer dst, ReduceOp op = ReduceOp::SUM,
                  const ProcessGroup& group = world());

// All ranks pass the same shape.
std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const ProcessGroup& group = world());

// All ranks pass the same shape. The result is zeros on every rank but `dst`.
std::vector<at::Tensor> gather(const at::Tensor& tensor, Peer dst = 0, const ProcessGroup& group = world());

// Rank r gets tensors[r] of `src`, all of one shape. Every rank passes a list; that of a receiver gives the
// shape.
at::Tensor scatter(const std::vector<at::Tensor>& tensors, Peer src = 0, const ProcessGroup& group = world());

// Rank r gets the combination of all ranks' input_list[r]. All have the shape of `output`.
at::Tensor reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& input_list,
                          ReduceOp op = ReduceOp::SUM, const ProcessGroup& group = world());

std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& output_tensor_list,
                                   const std::vector<at::Tensor>& input_tensor_list,
                                   const ProcessGroup& group = world());

at::Tensor all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                             const std::vector<std::int64_t>& output_split_sizes = {},
                             const std::vector<std::int64_t>& input_split_sizes = {},
                             const ProcessGroup& group = world());

}  // namespace lockstep::functional
