#include "lockstep/optim/gradient_accumulation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/virtual_ranks.h"

namespace lockstep {

AccumulationPlace accumulation_place(const GradientAccumulationOptions& options, std::int64_t number) {
  const std::int64_t steps = options.steps;
  if (!options.micro_batches) return {number % steps, steps};
  const std::int64_t in_epoch = number % *options.micro_batches;
  const std::int64_t first = in_epoch / steps * steps;
  return {in_epoch - first, std::min(steps, *options.micro_batches - first)};
}

GradientAccumulation::GradientAccumulation(std::vector<at::Tensor> parameters,
                                           const GradientAccumulationOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  if (options.steps < 1)
    throw InvalidArgument(lockstep::str("GradientAccumulation: steps is ", options.steps, ", not 1 or more"));
  if (options.micro_batches && *options.micro_batches < 1)
    throw InvalidArgument(
        lockstep::str("GradientAccumulation: micro_batches is ", *options.micro_batches, ", not 1 or more"));
}

GradientAccumulation::MicroBatch GradientAccumulation::next() {
  const AccumulationPlace place = accumulation_place(options_, begun_++);
  const bool last = place.index + 1 == place.size;
  return {*this, place, no_sync_ && !last ? no_sync_() : nullptr};
}

std::int64_t GradientAccumulation::pending() const { return accumulation_place(options_, begun_).index; }

NamedTensors GradientAccumulation::state_dict() const {
  if (pending() != 0)
    throw InvalidArgument(
        lockstep::str("GradientAccumulation::state_dict: ", pending(),
                      " micro-batches wait for their step, and their gradients would be lost; "
                      "take it after the optimiser's step"));
  return {{"begun", at::scalar_tensor(begun_, at::kLong)}};
}

void GradientAccumulation::load_state_dict(const NamedTensors& tensors) {
  if (tensors.size() != 1 || tensors[0].first != "begun" || tensors[0].second.item<std::int64_t>() < 0)
    throw InvalidArgument(
        "GradientAccumulation::load_state_dict: not the state of a GradientAccumulation, which has begun");
  begun_ = tensors[0].second.item<std::int64_t>();
}

void GradientAccumulation::begin_backward(Form form, std::int64_t index) {
  if (index == 0) {
    form_ = form;
    count_ = 0;
  }
  if (form_ != form)
    throw InvalidArgument(
        "GradientAccumulation: one micro-batch of a group gave a mean loss and another a sum and its number; "
        "give the "
        "same form throughout");
}

void GradientAccumulation::MicroBatch::backward(const at::Tensor& mean_loss) {
  owner_.begin_backward(Form::MEANS, place_.index);
  mean_loss.div(static_cast<double>(place_.size)).backward();
}

void GradientAccumulation::MicroBatch::backward(const at::Tensor& summed_loss, double count) {
  if (!(count >= 0) || std::isinf(count))
    throw InvalidArgument(lockstep::str("GradientAccumulation: ", count, " is not a number of losses"));
  if (has_virtual_ranks()) {
    throw InvalidArgument(
        "GradientAccumulation: backward() of a sum and its number is not possible with virtual ranks, which "
        "average once for several ranks; give the mean loss, or start the job without virtual ranks");
  }
  owner_.begin_backward(Form::SUMS, place_.index);
  owner_.count_ += count;
  summed_loss.backward();
  if (is_last()) owner_.normalise();
}

// DDP has divided by the number of ranks. The sum over all tokens must not be divided by it.
void GradientAccumulation::normalise() {
  double ranks = 1;
  if (group_) {
    const Acting acting(Purpose::ACCUMULATION);
    ranks = group_->size();
    comm::all_reduce(*group_, &count_, 1, DType::FLOAT64, ReduceOp::SUM).wait();
  }
  if (count_ == 0) return;  // no losses, so no gradients
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters_)
    if (parameter.grad().defined()) parameter.grad().mul_(ranks / count_);
}

}  // namespace lockstep
