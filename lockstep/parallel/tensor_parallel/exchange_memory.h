// Exchange memory: tensors in which a group's collectives work in place, made and dropped with every step.
// The layers of this room compute what they exchange straight into such tensors, so an exchange between ranks
// of one machine copies nothing.
//
//   at::Tensor partial = tensor_parallel::exchange_empty({n, features}, x.options(), group);
//   at::mm_out(partial, x, weight);
//   lockstep::all_reduce(partial, ReduceOp::SUM, group);       // in place, on all ranks
//
// Values      are not set. shared_empty() (tensor/collectives.h) would zero each tensor, which takes as
//             long as a small all_reduce. So memory that a dropped tensor leaves is kept here for the
//             next one.
// Kept        memory serves tensors with as many bytes. When none fits, all that is idle goes back to the
//             group first. So what is kept is at most what was in use at once.
// Lifetime    a tensor may outlive the group. A new group has idle memory of its own, to which no rank of a
//             failed one writes.
// Elsewhere   On other devices than the CPU, over connections, and in a group of one rank it is plain
//             memory.
// Threads     any thread; a tensor may be dropped on another one.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"

namespace lockstep::tensor_parallel {

// `options` gives dtype and device.
at::Tensor exchange_empty(at::IntArrayRef sizes, const at::TensorOptions& options, const ProcessGroup& group);

// The tensor's values, contiguous.
at::Tensor exchange_copy(const at::Tensor& tensor, const ProcessGroup& group);

}  // namespace lockstep::tensor_parallel
