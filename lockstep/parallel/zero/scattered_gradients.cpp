#include "lockstep/parallel/zero/scattered_gradients.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/gradients/gradient_fit.h"
#include "lockstep/parallel/zero/gradient_meeting.h"
#include "lockstep/parallel/zero/zero_wrapper.h"

namespace lockstep {

ScatteredGradients::ScatteredGradients(NamedTensors parameters, const ProcessGroup& group,
                                       const ShardPlan& plan, const GradientShare& share,
                                       const ScatterOptions& options, const std::string& model,
                                       Refusal refusal)
    : parameters_(std::move(parameters)),
      group_(group),
      refusal_(std::move(refusal)),
      claims_(tensors_of(parameters_)),
      arrivals_(parameters_.size()),
      scatter_(parameters_, group, plan, share, options, model),
      exchange_(group),
      used_(parameters_.size()),
      hooks_(tensors_of(parameters_),
             [this](std::size_t index, const at::Tensor& /*incoming*/) { on_gradient(index); }) {
  arrivals_.lay_out(scatter_.bucket_of(), scatter_.plan().size());
}

// The other ranks wait for this one within a pass: they are told, unless it is the group that has failed.
template <typename Body> void ScatteredGradients::guard(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    if (std::exchange(passes_.state, State::FAILED) != State::FAILED) {
      passes_.failure = error.what();
      group_.abort(str(ZERO_WRAPPER.on(group_), ": ", error.what()));
    }
    throw;
  }
}

// Autograd may call further hooks of the backward that has failed.
void ScatteredGradients::refuse_failed() const {
  if (passes_.state == State::FAILED)
    ZERO_WRAPPER.refuse(group_, str("a backward() failed: ", passes_.failure, ". Wrap the model again"));
}

void ScatteredGradients::renew() {
  const std::lock_guard lock(mutex_);
  if (passes_.state == State::IN_PASS) {
    guard([&] {
      ZERO_WRAPPER.refuse(group_,
                          "forward() or step() while a backward() of this model has not ended: an exception "
                          "ended it early on this rank, so the other ranks wait for its gradients");
    });
  }
  refuse_failed();
  hooks_.renew();
}

void ScatteredGradients::expect_fit(std::size_t parameter) const {
  const auto& [name, tensor] = parameters_[parameter];
  if (const auto refusal = refusal_of(tensor.grad(), tensor))
    ZERO_WRAPPER.refuse(group_, lockstep::str("parameter ", in_quotes(name), ": ", *refusal));
}

void ScatteredGradients::begin_pass() {
  arrivals_.begin_pass();
  passes_.state = State::IN_PASS;
  passes_.followed = -1;
}

void ScatteredGradients::on_gradient(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  refuse_failed();
  if (passes_.state == State::IDLE) {
    if (const auto refusal = refusal_()) ZERO_WRAPPER.refuse(group_, *refusal);
    if (AutogradHooks::is_creating_graph())
      ZERO_WRAPPER.refuse(group_,
                          "backward(create_graph = true): a gradient that is averaged over the ranks has no "
                          "graph of its own");
    begin_pass();
  }
  guard([&] {
    if (const int backward = AutogradHooks::current_backward(); backward != passes_.followed) {
      passes_.followed = backward;  // also one inside another (reentrant checkpointing)
      AutogradHooks::at_end_of_backward([this] { on_end_of_backward(); });
    }
    if (arrivals_.is_counted(parameter))
      ZERO_WRAPPER.refuse(
          group_, lockstep::str("parameter ", in_quotes(parameters_[parameter].first),
                                " got a second gradient in one backward(), and the first may be averaged "
                                "already: it takes part in several checkpointed blocks. Train with stage 1"));
    expect_fit(parameter);
    arrivals_.add(parameter);
    start_complete();
  });
}

void ScatteredGradients::start_complete() {
  while (!scatter_.are_all_started() && arrivals_.is_complete(scatter_.started())) {
    for (const BucketEntry& entry : scatter_.plan()[scatter_.started()].entries) {
      if (!parameters_[entry.parameter].second.grad().defined()) continue;
      expect_fit(entry.parameter);
      used_[entry.parameter] = true;
    }
    scatter_.start_next();
  }
}

void ScatteredGradients::on_end_of_backward() {
  const std::lock_guard lock(mutex_);
  if (passes_.state != State::IN_PASS) return;
  if (AutogradHooks::ended_inside_another_backward() && !arrivals_.all_arrived()) return;
  guard([&] { end_pass(); });
}

void ScatteredGradients::end_pass() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) arrivals_.leave_out(i);
  start_complete();
  learn_order();
  passes_.state = State::IDLE;
  ++passes_.of_step;
}

// Also waits for the buckets.
void ScatteredGradients::learn_order() {
  const bool is_known = std::exchange(passes_.knows_order, true) || scatter_.plan().size() < 2;
  const Acting acting(Purpose::SHARDED_STEP, {},
                      static_cast<std::int32_t>(GradientMeeting::Reason::BACKWARD));
  if (!is_known) exchange_.start_order(arrival_order(arrivals_.order(), parameters_.size()));
  scatter_.finish();
  exchange_.wait();
  if (const auto order = exchange_.take_order()) {
    scatter_.follow(*order);
    arrivals_.lay_out(scatter_.bucket_of(), scatter_.plan().size());
  }
}

std::vector<bool> ScatteredGradients::complete() {
  renew();
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  if (passes_.of_step == 0) {
    guard([&] {
      begin_pass();
      end_pass();
    });
  }
  for (const auto& [name, tensor] : parameters_) {
    if (tensor.grad().defined())
      ZERO_WRAPPER.refuse(group_, lockstep::str("parameter ", in_quotes(name),
                                                " has a .grad that was set after backward(), which has "
                                                "averaged the gradients. Set it before, or train with "
                                                "stage 1"));
  }
  return used_;
}

void ScatteredGradients::drop() {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, tensor] : parameters_) tensor.mutable_grad().reset();
  used_.assign(used_.size(), false);
  passes_.of_step = 0;
  scatter_.forget();
}

}  // namespace lockstep
