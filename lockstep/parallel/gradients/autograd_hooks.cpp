#include "lockstep/parallel/gradients/autograd_hooks.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace lockstep {

namespace autograd = torch::autograd;

struct AutogradHooks::Accumulators {
  // A tensor refers to its accumulator weakly, so these references keep the hooks alive. The pointer type
  // differs between libtorch versions.
  using NodePointer = decltype(autograd::impl::grad_accumulator(std::declval<at::Tensor>()));
  struct Hooked {
    NodePointer node;
    std::uintptr_t key = 0;
  };
  std::vector<Hooked> hooked;    // by parameter
  std::vector<Hooked> replaced;  // of graphs that may still exist
  std::unordered_map<const autograd::Node*, std::size_t> index_of;

  void let_go(const Hooked& one) {
    index_of.erase(one.node.get());
    one.node->del_post_hook(one.key);
  }
};

AutogradHooks::AutogradHooks(const std::vector<at::Tensor>& parameters, OnGradient on_gradient)
    : parameters_(parameters),
      on_gradient_(std::move(on_gradient)),
      accumulators_(std::make_unique<Accumulators>()) {
  accumulators_->hooked.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) hook(i);
}

AutogradHooks::~AutogradHooks() {
  for (const auto& one : accumulators_->hooked) accumulators_->let_go(one);
  for (const auto& one : accumulators_->replaced) accumulators_->let_go(one);
}

void AutogradHooks::hook(std::size_t parameter) {
  using Tensors = autograd::variable_list;
  auto node = autograd::impl::grad_accumulator(parameters_[parameter]);
  auto hook = [this, parameter](const Tensors& outputs, const Tensors& gradients) {
    if (!gradients.empty() && gradients[0].defined()) on_gradient_(parameter, gradients[0]);
    return outputs;
  };
  const auto key = node->add_post_hook(std::make_unique<autograd::utils::LambdaPostHook>(std::move(hook)));
  accumulators_->index_of.emplace(node.get(), parameter);
  accumulators_->hooked[parameter] = {.node = std::move(node), .key = key};
}

void AutogradHooks::renew() {
  auto& all = *accumulators_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].requires_grad()) continue;  // such a parameter has no accumulator
    if (autograd::impl::try_get_grad_accumulator(parameters_[i]) == all.hooked[i].node) continue;
    all.replaced.push_back(std::move(all.hooked[i]));
    hook(i);
  }
  std::erase_if(all.replaced, [&all](const auto& one) {
    if (one.node.use_count() > 1) return false;
    all.let_go(one);
    return true;
  });
}

std::vector<bool> AutogradHooks::reachable_from(const std::vector<at::Tensor>& outputs) const {
  std::vector<bool> reachable(accumulators_->hooked.size(), false);
  std::unordered_set<const autograd::Node*> seen;
  std::vector<const autograd::Node*> to_visit;
  const auto visit = [&](const autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) to_visit.push_back(node);
  };
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad())
      visit(autograd::impl::gradient_edge(output).function.get());
  }
  while (!to_visit.empty()) {
    const autograd::Node* node = to_visit.back();
    to_visit.pop_back();
    const auto found = accumulators_->index_of.find(node);
    if (found != accumulators_->index_of.end()) reachable[found->second] = true;
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return reachable;
}

int AutogradHooks::current_backward() { return autograd::get_current_graph_task_id(); }

bool AutogradHooks::is_creating_graph() { return c10::GradMode::is_enabled(); }

void AutogradHooks::at_end_of_backward(std::function<void()> callback) {
  autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

// No hook is placed on a leaf: hooks on it would accumulate, and its own accumulator is in the graph of the
// backward anyway.
void AutogradHooks::at_end_of_backward_through(const std::vector<at::Tensor>& outputs,
                                               const std::function<void()>& callback) {
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad() || output.is_leaf()) continue;
    output.register_hook([callback](const at::Tensor&) { at_end_of_backward(callback); });
  }
}

// The engine runs callbacks after the last node, so a node that is still being evaluated belongs to an outer
// backward.
bool AutogradHooks::ended_inside_another_backward() { return autograd::get_current_node() != nullptr; }

}  // namespace lockstep
