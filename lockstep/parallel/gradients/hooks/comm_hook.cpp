#include "lockstep/parallel/gradients/hooks/comm_hook.h"

#include <ATen/ops/view_as_real.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/gradients/gradient_slot.h"

namespace lockstep {

GradBucket::GradBucket(std::size_t index, bool is_last, at::Tensor buffer, std::shared_ptr<const Parts> parts,
                       ProcessGroup group)
    : index_(index),
      is_last_(is_last),
      buffer_(std::move(buffer)),
      parts_(std::move(parts)),
      group_(std::move(group)) {}

at::Tensor GradBucket::reals() const {
  return buffer_.is_complex() ? at::view_as_real(buffer_).view({-1}) : buffer_;
}

std::vector<at::Tensor> GradBucket::gradients() const {
  std::vector<at::Tensor> views;
  for (const GradBucketPart& part : *parts_) {
    views.push_back(
        gradient_alias(buffer_, part.parameter.sizes(), part.strides, static_cast<std::size_t>(part.offset)));
  }
  return views;
}

std::vector<at::Tensor> GradBucket::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const GradBucketPart& part : *parts_) tensors.push_back(part.parameter);
  return tensors;
}

HookErrorBound CommHook::error_bound(at::ScalarType, int) const { return {}; }

void CommHook::load_state_dict(const State& state) {
  if (state.is_empty()) return;
  throw InvalidArgument(lockstep::str("communication hook \"", printable(describe()),
                                      "\" keeps no state, but the state to load has \"",
                                      printable(state.front().key()), "\": it is of another hook"));
}

void finish_steps(std::vector<HookStep>& steps) {
  for (bool more = true; more;) {
    more = false;
    for (HookStep& step : steps) {
      std::exchange(step.work, Work()).wait();
      if (!step.then) continue;
      const auto then = std::exchange(step.then, {});
      step = then();
      more = true;
    }
  }
}

}  // namespace lockstep
