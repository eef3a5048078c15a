// all_reduce of sparse COO tensors: everybody gets everybody's indices and values and adds them up. Called by
// all_reduce().
//
// Who     every rank of `group`. Sizes, sparse_dim and dtype must agree (Mismatch, on every rank alike);
//         numbers of elements need not. The tensor becomes the coalesced sum, equal on every rank: ranks are
//         added in order.
// Blocks  until done: three exchanges.
// Fails   InvalidArgument: an operator that is not SUM, a dtype that is not carried, not on the CPU.
//         Otherwise as all_gather.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

void sparse_all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group);

}  // namespace lockstep
