#include "lockstep/parallel/gradients/model_gradients.h"

#include <utility>

#include "lockstep/base/str.h"

namespace lockstep {

ModelGradients::ModelGradients(const Wrapper& wrapper, const ProcessGroup& group, const NamedTensors& dense,
                               const NamedTensors& sparse, BucketPlan plan)
    : wrapper_(wrapper),
      group_(group),
      dense_(dense, group, std::move(plan)),
      arrivals_(dense.size() + sparse.size()) {
  for (const auto& [name, tensor] : sparse) sparse_.emplace_back(name, tensor);
  arrivals_.lay_out(dense_.bucket_of(), dense_.buckets());
}

const at::Tensor& ModelGradients::tensor(std::size_t index) const {
  return is_dense(index) ? dense_.slot(index).parameter() : sparse_[index - dense_.size()].parameter();
}

const std::string& ModelGradients::name(std::size_t index) const {
  return is_dense(index) ? dense_.slot(index).name() : sparse_[index - dense_.size()].name();
}

void ModelGradients::refuse_changed() const {
  for (std::size_t i = 0; i < size(); ++i) {
    const auto change = is_dense(i) ? dense_.slot(i).change() : sparse_[i - dense_.size()].change();
    if (change) wrapper_.refuse(group_, lockstep::str("parameter ", in_quotes(name(i)), " ", *change));
  }
}

bool ModelGradients::any_requires_grad() const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (tensor(i).requires_grad()) return true;
  }
  return false;
}

std::optional<std::string> ModelGradients::frozen_since() const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (tensor(i).requires_grad()) continue;
    return lockstep::str(in_quotes(name(i)),
                         " required one when the model was wrapped and does not now: wrap the model again "
                         "after requires_grad_(false)");
  }
  return std::nullopt;
}

std::optional<std::string> ModelGradients::too_late(std::size_t index, std::size_t started) const {
  using Lateness = GradientArrivals::Lateness;
  const bool is_started = is_dense(index) && dense_.bucket_of()[index] < started;
  const Lateness lateness = arrivals_.lateness(index, is_started);
  if (lateness == Lateness::NONE) return std::nullopt;
  const std::string who = lockstep::str("parameter ", in_quotes(name(index)), " got ");
  if (lateness == Lateness::SECOND_GRADIENT) return who + "a second gradient in one backward()";
  if (lateness == Lateness::AFTER_IT_WAS_LEFT_OUT) return who + "a gradient after it was found unused";
  return lockstep::str(who, "more gradients in this backward() than in the first (",
                       arrivals_.expected(index), "), but the graph was declared static");
}

std::vector<std::string> ModelGradients::without_gradient() const {
  const bool is_learnt = arrivals_.graph() == GradientArrivals::Graph::LEARNT;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < size(); ++i) {
    const bool kept_one = !is_learnt && arrivals_.was_used(i) && tensor(i).grad().defined();
    if (arrivals_.is_short(i) && !kept_one) names.push_back(name(i));
  }
  return names;
}

void ModelGradients::begin_pass(const ParameterClaims& claims) {
  arrivals_.begin_pass();
  dense_.begin_pass(claims);
}

void ModelGradients::end_pass() { dense_.end_pass(); }

void ModelGradients::add(std::size_t index, const at::Tensor& incoming) {
  take(index, incoming);
  arrivals_.add(index);
}

void ModelGradients::take(std::size_t index, const at::Tensor& incoming) {
  const auto refusal =
      is_dense(index) ? dense_.slot(index).refusal() : sparse_[index - dense_.size()].refusal();
  if (refusal) wrapper_.refuse(group_, lockstep::str("parameter ", in_quotes(name(index)), ": ", *refusal));
  if (is_dense(index)) {
    dense_.take(index, incoming);
  } else {
    sparse_[index - dense_.size()].take_gradient();
  }
}

void ModelGradients::leave_out(std::size_t index) {
  if (arrivals_.is_counted(index)) return;
  if (arrivals_.was_used(index) && tensor(index).grad().defined()) {
    take(index, {});
  } else if (is_dense(index)) {
    dense_.leave_out(index);
  } else {
    sparse_[index - dense_.size()].contribute_nothing_new();
  }
  arrivals_.leave_out(index);
}

void ModelGradients::leave_out_unused() {
  for (std::size_t i = 0; i < size(); ++i) {
    if (arrivals_.is_outside_of_graph(i)) leave_out(i);
  }
}

void ModelGradients::drop_gradients() {
  dense_.drop_gradients();
  for (const SparseGradient& gradient : sparse_) gradient.parameter().mutable_grad().reset();
}

void ModelGradients::scale(double factor) {
  dense_.scale(factor);
  for (SparseGradient& gradient : sparse_) gradient.scale(factor);
}

void ModelGradients::settle(const PassExchange& exchange) {
  for (std::size_t i = 0; i < size(); ++i) {
    if (is_dense(i)) {
      dense_.settle(i, exchange.was_used(i));
    } else {
      sparse_[i - dense_.size()].settle(exchange.was_used(i));
    }
  }
  arrivals_.end_step();
}

void ModelGradients::end_turn() {
  for (std::size_t i = 0; i < dense_.size(); ++i) dense_.settle(i, /*used_by_any_rank=*/false);
  arrivals_.end_step();
}

void ModelGradients::follow(BucketPlan plan) {
  dense_.follow(std::move(plan));
  arrivals_.lay_out(dense_.bucket_of(), dense_.buckets());
}

}  // namespace lockstep
