#include "lockstep/autograd/graph_leaves.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace lockstep {

// Without recursion: a graph may be deeper than the stack.
std::vector<at::Tensor> graph_leaves(const std::vector<at::Tensor>& roots) {
  namespace autograd = torch::autograd;
  std::vector<at::Tensor> leaves;
  std::vector<autograd::Node*> open;
  std::unordered_set<const autograd::Node*> seen;
  const auto enter = [&](autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& root : roots) {
    if (root.defined() && root.requires_grad()) enter(autograd::impl::gradient_edge(root).function.get());
  }
  while (!open.empty()) {
    autograd::Node* const node = open.back();
    open.pop_back();
    if (const auto* const leaf = dynamic_cast<autograd::AccumulateGrad*>(node))
      leaves.push_back(leaf->variable);
    for (const autograd::Edge& edge : node->next_edges()) enter(edge.function.get());
  }
  return leaves;
}

}  // namespace lockstep
