// The leaves of an autograd graph: the tensors to whose .grad a backward would add.
//
//   at::Tensor y = net->forward(x).sum();
//   dist::graph_leaves({y});                    // the parameters that y depends on, and x if it wants one
//
// Not seen  what an activation checkpoint computes again (autograd/activation_checkpoint.h): its inner graph
//           is made in backward.
// Threads   any, while nobody changes the graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

// Each once, in an order that is the same for the same graph. Roots that require no gradient have none.
std::vector<at::Tensor> graph_leaves(const std::vector<at::Tensor>& roots);

}  // namespace lockstep
