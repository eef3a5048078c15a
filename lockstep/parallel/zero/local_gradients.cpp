#include "lockstep/parallel/zero/local_gradients.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/parallel/zero/zero_wrapper.h"

namespace lockstep {

LocalGradients::LocalGradients(const NamedTensors& parameters, const ProcessGroup& group, BucketPlan layout,
                               Refusal refusal)
    : group_(group),
      refusal_(std::move(refusal)),
      claims_(tensors_of(parameters)),
      store_(parameters, group, std::move(layout)),
      hooks_(tensors_of(parameters),
             [this](std::size_t index, const at::Tensor& incoming) { on_gradient(index, incoming); }) {}

void LocalGradients::renew() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_in_backward_, false)) store_.end_pass();  // an exception left that backward
  for (std::size_t i = 0; i < store_.size(); ++i) {
    if (const auto change = store_.slot(i).change())
      ZERO_WRAPPER.refuse(group_,
                          lockstep::str("parameter ", in_quotes(store_.slot(i).name()), " ", *change));
  }
  hooks_.renew();
}

void LocalGradients::expect_fit(std::size_t parameter) const {
  const GradientSlot& slot = store_.slot(parameter);
  if (const auto refusal = slot.refusal())
    ZERO_WRAPPER.refuse(group_, lockstep::str("parameter ", in_quotes(slot.name()), ": ", *refusal));
}

void LocalGradients::on_gradient(std::size_t parameter, const at::Tensor& incoming) {
  const std::lock_guard lock(mutex_);
  if (!is_in_backward_) {
    if (const auto refusal = refusal_()) ZERO_WRAPPER.refuse(group_, *refusal);
    if (AutogradHooks::is_creating_graph())
      ZERO_WRAPPER.refuse(group_,
                          "backward(create_graph = true): a gradient that has a graph of its own cannot "
                          "lie in memory that the ranks share");
    store_.begin_pass(claims_);
    is_in_backward_ = true;
    followed_ = -1;
  }
  if (const int backward = AutogradHooks::current_backward(); backward != followed_) {
    followed_ = backward;  // or one inside another (reentrant checkpointing)
    AutogradHooks::at_end_of_backward([this] { on_end_of_backward(); });
  }
  expect_fit(parameter);
  store_.take(parameter, incoming);
}

void LocalGradients::on_end_of_backward() {
  const std::lock_guard lock(mutex_);
  if (AutogradHooks::ended_inside_another_backward()) return;
  if (std::exchange(is_in_backward_, false)) store_.end_pass();
}

std::vector<bool> LocalGradients::complete() {
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  std::vector<bool> used(store_.size());
  for (std::size_t i = 0; i < store_.size(); ++i) {
    used[i] = store_.slot(i).has_gradient();
    if (!used[i]) {
      store_.leave_out(i);
    } else if (!store_.slot(i).is_installed()) {
      expect_fit(i);
      store_.take(i, {});
    }
  }
  return used;
}

void LocalGradients::drop() {
  const std::lock_guard lock(mutex_);
  store_.drop_gradients();
}

}  // namespace lockstep
