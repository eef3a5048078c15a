// Collectives through which gradients flow, with the names, argument order and meaning of
// torch.distributed.nn.functional.
//
//   namespace F = lockstep::functional;
//   at::Tensor y = F::all_reduce(x);                       // x stays as it is
//   loss_of(y).backward();                                 // x.grad is the sum of all ranks' gradients of y
//
// Forward     the verb of collectives.h of the same name, out of place: results are new tensors.
// Backward    the adjoint, so the gradients are those of one process that computes the whole:
//               all_reduce <-> all_reduce (SUM, AVG)    all_gather <-> reduce_scatter
//               broadcast <-> reduce                    gather <-> scatter          all_to_all <-> all_to_all
//             and again through a backward with create_graph: every backward is made of the functions here.
// Who         every rank of `group`, forward and backward: each rank calls backward() through its result, in
//             the same order of calls. So either all ranks pass tensors that require gradients or none does,
//             also where a rank's values do not matter (the receivers of broadcast and scatter). A rank that
//             does not come makes the others fail at the deadline with its name.
// Results     that only one rank receives (reduce, gather) are zeros elsewhere, and gradients of those zeros
//             are dropped.
// Differs     from torch: tensors named `output` give sizes and dtype, and are not written; the answer is the
//             result.
// Fails       InvalidArgument: a process outside the group; an operator that is not SUM or AVG where
//             gradients are needed (MIN, MAX, PRODUCT have no gradient that one collective gives). Otherwise
//             as collectives.h.
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

// Zeros on every other rank than `dst`.
at::Tensor reduce(const at::Tensor& tensor, Peer dst, ReduceOp op = ReduceOp::SUM,
                  const ProcessGroup& group = world());

// All of one shape.
std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const ProcessGroup& group = world());

// All of one shape. Zeros on every other rank than `dst`.
std::vector<at::Tensor> gather(const at::Tensor& tensor, Peer dst = 0, const ProcessGroup& group = world());

// tensors[r] of `src` for rank r, all of one shape. Every rank passes such a list; that of the receivers
// gives the shape.
at::Tensor scatter(const std::vector<at::Tensor>& tensors, Peer src = 0, const ProcessGroup& group = world());

// Rank r gets the combination of everybody's input_list[r], which have the shape of `output`.
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
