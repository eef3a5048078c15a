#include "lockstep/parallel/gradients/turn_gradients.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

namespace lockstep {

std::vector<TurnGradients::Seen> TurnGradients::seen_now() const {
  std::vector<Seen> seen;
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& grad = parameter.grad();
    if (grad.defined()) {
      seen.push_back(
          {.tensor = grad.unsafeGetTensorImpl(), .version = static_cast<std::uint32_t>(grad._version())});
    } else {
      seen.emplace_back();
    }
  }
  return seen;
}

std::optional<std::string> TurnGradients::begin_round() {
  const c10::NoGradGuard no_grad;
  if (!kept_.empty()) {
    const std::vector<Seen> now = seen_now();
    const bool is_zeroed =
        std::all_of(now.begin(), now.end(), [](const Seen& seen) { return seen.tensor == nullptr; });
    if (is_zeroed) kept_.clear();
    if (!is_zeroed && now != seen_) {
      return "gradients were changed between two rounds of virtual ranks that accumulate under no_sync(): "
             "only "
             "one virtual rank's would have changed. Use zero_grad(), which drops those of all, or change "
             "them "
             "after the average";
    }
  }
  starts_.clear();
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& grad = parameter.grad();
    const bool is_needed = grad.defined() && kept_.empty();
    starts_.push_back({.tensor = grad, .value = is_needed ? grad.clone() : at::Tensor()});
  }
  return std::nullopt;
}

std::vector<bool> TurnGradients::begin_turn(int virtual_rank) {
  const c10::NoGradGuard no_grad;
  const auto found = kept_.extract(virtual_rank);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& value = found.empty() ? starts_[i].value : found.mapped().values[i];
    at::Tensor& grad = parameters_[i].mutable_grad();
    grad = value.defined() ? starts_[i].tensor : at::Tensor();
    if (value.defined() && grad.defined()) {
      grad.copy_(value);
    } else if (value.defined()) {
      grad = value;
    }
  }
  return found.empty() ? std::vector<bool>() : found.mapped().used;
}

void TurnGradients::keep(int virtual_rank, std::vector<bool> used) {
  const c10::NoGradGuard no_grad;
  Kept& kept = kept_[virtual_rank];
  kept.used = std::move(used);
  kept.values.clear();
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& grad = parameter.grad();
    kept.values.push_back(grad.defined() ? grad.clone() : at::Tensor());
  }
}

void TurnGradients::end_round() {
  starts_.clear();
  seen_ = kept_.empty() ? std::vector<Seen>() : seen_now();
}

}  // namespace lockstep
