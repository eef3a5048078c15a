// Gives every rank the tensors of rank 0, or of another `root`. Small tensors are packed together, so that a
// model of a thousand small tensors costs few collectives.
//
//   broadcast_tensors({net->conv1->weight, net->conv1->bias}, group);
//
// Collective  Every rank of the group; same shapes and dtypes in the same order. Strides may differ, but a
//             tensor of expand() is one on all ranks.
// Blocks      until this rank's tensors hold the root's values. comm/collectives/broadcast.h says how long
//             the root blocks.
// Result      Written outside autograd: version counters do not change. So a graph that saved a buffer (batch
//             normalisation under two forwards) can still run backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

// Whether several elements lie at one place in memory, as expand() makes them.
bool repeats(const at::Tensor& tensor);
// A view that has each place in memory once, or the tensor itself.
at::Tensor without_repeats(const at::Tensor& tensor);

void broadcast_tensors(const std::vector<at::Tensor>& tensors, const ProcessGroup& group,
                       GroupRank root = {0});

}  // namespace lockstep
