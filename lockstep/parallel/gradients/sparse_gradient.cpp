#include "lockstep/parallel/gradients/sparse_gradient.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

at::Tensor without_rows(const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  std::vector<std::int64_t> values = sizes;
  values[0] = 0;
  return at::sparse_coo_tensor(at::empty({1, 0}, at::kLong), at::empty(values, type), sizes);
}

template <typename Impl> void add_sparse(const torch::nn::Module& module, std::vector<at::Tensor>& found) {
  const auto* table = dynamic_cast<const Impl*>(&module);
  if (table != nullptr && table->options.sparse()) found.push_back(table->weight);
}

void visit(const torch::nn::Module& module, std::vector<at::Tensor>& found) {
  add_sparse<torch::nn::EmbeddingImpl>(module, found);
  add_sparse<torch::nn::EmbeddingBagImpl>(module, found);
  for (const auto& child : module.children()) visit(*child, found);
}

}  // namespace

SparseGradient::SparseGradient(std::string name, at::Tensor parameter)
    : name_(std::move(name)),
      parameter_(std::move(parameter)),
      sizes_(parameter_.sizes().vec()),
      type_(parameter_.scalar_type()) {}

std::optional<std::string> SparseGradient::change() const {
  if (!parameter_.is_leaf()) return "is the result of an operation now, and was a leaf when it was wrapped";
  if (parameter_.sizes() == at::IntArrayRef(sizes_) && parameter_.scalar_type() == type_ &&
      parameter_.device().is_cpu()) {
    return std::nullopt;
  }
  return lockstep::str("was ", type_, " ", at::IntArrayRef(sizes_), " on cpu when it was wrapped and is ",
                       parameter_.scalar_type(), " ", parameter_.sizes(), " on ", parameter_.device(),
                       " now; wrap the model again after changing it");
}

std::optional<std::string> SparseGradient::refusal() const {
  const at::Tensor& grad = parameter_.grad();
  if (!grad.defined()) {
    return "its .grad was empty after the gradient was accumulated: a hook took it before it was averaged";
  }
  if (grad.layout() == c10::kSparse) return std::nullopt;
  return "its gradient is dense, but it was declared sparse: it is also used outside of the embedding, or "
         "its .grad was dense "
         "before; use sparse(false)";
}

std::size_t SparseGradient::reduce(const ProcessGroup& group) {
  const c10::NoGradGuard no_grad;
  const at::Tensor own = taken_.defined() ? std::exchange(taken_, {}) : parameter_.grad();
  average_ = own.defined() ? own.coalesce().clone() : without_rows(sizes_, type_).coalesce();
  const std::size_t bytes = average_._indices().nbytes() + average_._values().nbytes();
  all_reduce(average_, ReduceOp::SUM, group);
  average_._values().div_(group.size());
  return bytes;
}

void SparseGradient::settle(bool used_by_any_rank) {
  if (!nothing_new_ || used_by_any_rank) parameter_.mutable_grad() = average_;
  average_.reset();
  nothing_new_ = false;
}

void find_sparse(const torch::nn::Module& module, const NamedTensors& parameters,
                 std::vector<std::string>& names) {
  std::vector<at::Tensor> sparse;
  visit(module, sparse);
  for (const auto& [name, tensor] : parameters) {
    const bool is_one = std::any_of(sparse.begin(), sparse.end(),
                                    [&, &weight = tensor](const auto& one) { return one.is_same(weight); });
    if (is_one && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
}

}  // namespace lockstep
