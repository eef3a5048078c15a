#include "lockstep/parallel/pipeline/split_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <utility>

namespace lockstep {
namespace {

namespace autograd = torch::autograd;
using autograd::Edge, autograd::edge_list, autograd::Node;

// The operations that lead from the roots to one of the leaves.
class Path {
 public:
  Path(const edge_list& roots, const edge_list& leaves) {
    for (const Edge& leaf : leaves) on_path_.insert(leaf.function.get());
    for (const Edge& root : roots) visit(root.function.get());
  }

  bool has(const Edge& edge) const { return edge.is_valid() && on_path_.contains(edge.function.get()); }

  // Those that lead to a parameter as well. The order is that of the graph, so it is the same in every run.
  const std::vector<Node*>& forks() const { return forks_; }
  const std::vector<Node*>& rest() const { return rest_; }

 private:
  // Depth first and without recursion: a graph may be deeper than the stack.
  void visit(Node* root) {
    struct Visit {
      Node* node;
      std::size_t next = 0;
    };
    std::vector<Visit> open;
    const auto enter = [&](Node* node) {
      if (node != nullptr && seen_.insert(node).second) open.push_back({node});
    };
    enter(root);
    while (!open.empty()) {
      auto& [node, next] = open.back();
      if (next < node->next_edges().size()) {
        enter(node->next_edges()[next++].function.get());
      } else {
        leave(node);
        open.pop_back();
      }
    }
  }

  // All operations that `node` leads to have been left.
  void leave(Node* node) {
    bool leads_to_leaf = false, leads_elsewhere = false;
    for (const Edge& edge : node->next_edges())
      (has(edge) ? leads_to_leaf : leads_elsewhere) |= edge.is_valid();
    if (!leads_to_leaf) return;
    on_path_.insert(node);
    (leads_elsewhere ? forks_ : rest_).push_back(node);
  }

  std::unordered_set<Node*> seen_, on_path_;
  std::vector<Node*> forks_, rest_;
};

autograd::variable_list run(const edge_list& roots, const std::vector<at::Tensor>& gradients, bool keep_graph,
                            bool accumulate, const edge_list& outputs) {
  return autograd::Engine::get_default_engine().execute(roots, gradients, keep_graph, /*create_graph=*/false,
                                                        accumulate, outputs);
}

void cut_off(Node& fork, const Path& path) {
  for (Edge& edge : fork.next_edges())
    if (path.has(edge)) edge = Edge();
}

}  // namespace

SplitBackward::SplitBackward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                             const std::vector<at::Tensor>& inputs)
    : input_gradients_(inputs.size()) {
  edge_list roots, wanted;
  std::vector<at::Tensor> of_roots;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(autograd::impl::gradient_edge(outputs[i]));
    of_roots.push_back(gradients[i]);
  }
  std::vector<std::size_t> wanted_inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    wanted.push_back(autograd::impl::gradient_edge(inputs[i]));
    wanted_inputs.push_back(i);
  }

  const Path path(roots, wanted);
  edge_list path_roots;
  std::vector<at::Tensor> of_path;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const bool is_on_path = path.has(roots[i]);
    (is_on_path ? path_roots : starts_).push_back(roots[i]);
    (is_on_path ? of_path : kept_).push_back(of_roots[i]);
  }
  if (path_roots.empty()) {
    add_weight_gradients_in_place(starts_);
    return;
  }

  for (Node* fork : path.forks())
    for (std::uint32_t k = 0; k < fork->num_inputs(); ++k) wanted.emplace_back(fork->getptr(), k);
  const autograd::variable_list found = run(path_roots, of_path, /*keep_graph=*/true, false, wanted);
  for (std::size_t i = 0; i < wanted_inputs.size(); ++i) input_gradients_[wanted_inputs[i]] = found[i];
  for (std::size_t i = wanted_inputs.size(); i < wanted.size(); ++i) {
    if (!found[i].defined()) continue;
    forks_.push_back({.start = wanted[i], .gradient = found[i], .of_weight = nullptr});
  }
  // A fork's saved input may keep the operation that made it alive, so what the rest saved goes by itself.
  for (Node* node : path.rest()) node->release_variables();
  // `wanted` keeps the forks alive while the path between them goes.
  for (Node* fork : path.forks()) cut_off(*fork, path);
  for (Fork& fork : forks_) fork.of_weight = add_weight_gradient_in_place(*fork.start.function);
  edge_list all = starts_;
  for (const Fork& fork : forks_) all.push_back(fork.start);
  add_weight_gradients_in_place(all);
}

void SplitBackward::take_weights_of(SplitBackward& earlier) {
  for (std::size_t i = 0; i < std::min(forks_.size(), earlier.forks_.size()); ++i) {
    const Fork& other = earlier.forks_[i];
    if (forks_[i].of_weight && other.of_weight) forks_[i].of_weight->take(*other.of_weight, other.gradient);
  }
}

void SplitBackward::accumulate() {
  edge_list starts = std::exchange(starts_, {});
  std::vector<at::Tensor> gradients = std::exchange(kept_, {});
  for (Fork& fork : std::exchange(forks_, {})) {
    starts.push_back(std::move(fork.start));
    gradients.push_back(std::move(fork.gradient));
  }
  if (!starts.empty()) run(starts, gradients, /*keep_graph=*/false, /*accumulate=*/true, {});
}

}  // namespace lockstep
