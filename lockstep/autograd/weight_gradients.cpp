#include "lockstep/autograd/weight_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_set>
#include <utility>

namespace lockstep {
namespace {

namespace autograd = torch::autograd;
using autograd::Node;

bool has_hooks(Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_floating_point() && tensor.is_contiguous();
}

// A product of a graph: its first factor, and the edge to the second one.
struct Product {
  const autograd::SavedVariable* input = nullptr;
  std::size_t edge = 0;
};

std::optional<Product> product_of(const Node& node) {
  if (const auto* const addmm = dynamic_cast<const autograd::generated::AddmmBackward0*>(&node)) {
    if (addmm->alpha.equal(1)) return Product{.input = &addmm->mat1_, .edge = 2};
  } else if (const auto* const mm = dynamic_cast<const autograd::generated::MmBackward0*>(&node)) {
    return Product{.input = &mm->self_, .edge = 1};
  }
  return {};
}

struct Weight {
  at::Tensor parameter;
  bool is_transposed = false;
};

// The parameter that an edge leads to, if its .grad can be added to.
std::optional<Weight> weight_behind(const autograd::Edge& edge) {
  if (!edge.is_valid()) return {};
  Node* node = edge.function.get();
  const bool is_transposed = dynamic_cast<autograd::generated::TBackward0*>(node) != nullptr;
  if (is_transposed) {
    if (has_hooks(*node) || !node->next_edge(0).is_valid()) return {};
    node = node->next_edge(0).function.get();
  }
  auto* const leaf = dynamic_cast<autograd::AccumulateGrad*>(node);
  if (leaf == nullptr || has_hooks(*leaf) || !is_plain(leaf->variable)) return {};
  const at::Tensor& grad = leaf->variable.grad();
  const bool can_add =
      !grad.defined() || (is_plain(grad) && !grad.requires_grad() && grad.dtype() == leaf->variable.dtype());
  return can_add ? std::optional(Weight{leaf->variable, is_transposed}) : std::nullopt;
}

at::Tensor joined_rows(const std::vector<at::Tensor>& pieces) {
  return pieces.size() == 1 ? pieces.front() : at::cat(pieces);
}

struct AddHook : autograd::FunctionPreHook {
  explicit AddHook(std::shared_ptr<WeightGradient> gradient) : of_weight(std::move(gradient)) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    if (gradients[0].defined()) of_weight->add(gradients[0]);
    return gradients;
  }
  const std::shared_ptr<WeightGradient> of_weight;
};

}  // namespace

WeightGradient::WeightGradient(at::Tensor input, at::Tensor weight, bool is_transposed)
    : input_(std::move(input)), weight_(std::move(weight)), is_transposed_(is_transposed) {}

bool WeightGradient::take(WeightGradient& earlier, const at::Tensor& gradient) {
  if (!input_.defined() || !earlier.input_.defined()) return false;
  if (!weight_.is_same(earlier.weight_) || is_transposed_ != earlier.is_transposed_) return false;
  // Two together read and write .grad once less, and read and write all rows once more.
  const std::int64_t row = weight_.size(0) + weight_.size(1);
  if ((input_.size(0) + earlier.input_.size(0)) * row > weight_.numel()) return false;
  taken_.insert(taken_.end(), earlier.taken_.begin(), earlier.taken_.end());
  taken_.push_back({.input = std::exchange(earlier.input_, {}), .gradient = gradient});
  earlier.taken_.clear();
  return true;
}

void WeightGradient::add(const at::Tensor& gradient) {
  if (!input_.defined()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> inputs, gradients;
  for (Rows& rows : std::exchange(taken_, {})) {
    inputs.push_back(std::move(rows.input));
    gradients.push_back(std::move(rows.gradient));
  }
  inputs.push_back(std::exchange(input_, {}));
  gradients.push_back(gradient);
  at::Tensor left = joined_rows(inputs), right = joined_rows(gradients);
  if (is_transposed_) std::swap(left, right);
  at::Tensor& grad = weight_.mutable_grad();
  if (grad.defined())
    grad.addmm_(left.t(), right);
  else
    grad = left.t().mm(right);
}

std::shared_ptr<WeightGradient> add_weight_gradient_in_place(Node& node) {
  const std::optional<Product> product = product_of(node);
  if (!product || product->input->has_hooks() || has_hooks(node)) return nullptr;
  autograd::Edge& edge = node.next_edges()[product->edge];
  const std::optional<Weight> weight = weight_behind(edge);
  if (!weight) return nullptr;
  auto gradient =
      std::make_shared<WeightGradient>(product->input->unpack(), weight->parameter, weight->is_transposed);
  node.add_pre_hook(std::make_unique<AddHook>(gradient));
  edge = autograd::Edge();
  return gradient;
}

// Without recursion: a graph may be deeper than the stack.
void add_weight_gradients_in_place(const autograd::edge_list& starts) {
  std::vector<Node*> open;
  std::unordered_set<const Node*> seen;
  const auto enter = [&](const autograd::Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  };
  for (const autograd::Edge& start : starts) enter(start);
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    add_weight_gradient_in_place(*node);
    for (const autograd::Edge& edge : node->next_edges()) enter(edge);
  }
}

void add_weight_gradients_in_place(const std::vector<at::Tensor>& outputs) {
  autograd::edge_list starts;
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad()) starts.push_back(autograd::impl::gradient_edge(output));
  add_weight_gradients_in_place(starts);
}

}  // namespace lockstep
