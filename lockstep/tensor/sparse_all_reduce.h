// all_reduce of sparse COO tensors: every rank gathers the indices and values of all ranks and adds them up.
// Called by all_reduce().
//
// Who     Every rank of `group`. Sizes, sparse_dim and dtype must agree (else Mismatch, on every rank). The
//         numbers of elements need not. The tensor becomes the coalesced sum. It is equal on every rank,
//         because all add up in rank order.
// Blocks  until done: three exchanges.
// Fails   InvalidArgument: an operator other than SUM, an unsupported dtype, a tensor that is not on the CPU.
//         Otherwise as all_gather.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

void sparse_all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group);

}  // namespace lockstep
