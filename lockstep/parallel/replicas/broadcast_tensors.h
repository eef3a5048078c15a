// Gives every rank the tensors of rank 0, or of another `root`, small ones packed together: a model of a
// thousand small tensors costs a few collectives.
//
//   broadcast_tensors({net->conv1->weight, net->conv1->bias}, group);
//
// Collective  every rank of the group; same shapes and dtypes in the same order. Strides may differ, but what
//             expand() made is so on all ranks.
// Blocks      until this rank's tensors hold the root's values; the root as long as
//             comm/collectives/broadcast.h says.
// Result      written outside autograd: version counters do not change, so a graph that saved a buffer (batch
//             normalisation under two forwards) can still run backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

// Whether several elements are one place in memory, as expand() makes them.
bool repeats(const at::Tensor& tensor);
// Each place in memory once: a view of the tensor, or itself.
at::Tensor without_repeats(const at::Tensor& tensor);

void broadcast_tensors(const std::vector<at::Tensor>& tensors, const ProcessGroup& group,
                       GroupRank root = {0});

}  // namespace lockstep
