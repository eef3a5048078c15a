#include "lockstep/optim/reduce_lr_on_plateau.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/scheduler_state.h"

namespace lockstep::optim {

using Mode = ReduceLROnPlateauOptions::Mode;
using ThresholdMode = ReduceLROnPlateauOptions::ThresholdMode;

ReduceLROnPlateau::ReduceLROnPlateau(torch::optim::Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : optimizer_(optimizer),
      options_(std::move(options)),
      best_(options_.mode == Mode::MIN ? std::numeric_limits<double>::infinity()
                                       : -std::numeric_limits<double>::infinity()) {
  if (!(options_.factor < 1))
    throw InvalidArgument(lockstep::str("ReduceLROnPlateau: factor is ", options_.factor, ", not below 1"));
  if (options_.min_lr.size() != 1 && options_.min_lr.size() != optimizer.param_groups().size())
    throw InvalidArgument(lockstep::str("ReduceLROnPlateau: ", options_.min_lr.size(),
                                        " values of min_lr for ", optimizer.param_groups().size(),
                                        " parameter groups"));
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const double sign = options_.mode == Mode::MIN ? -1 : 1;
  const double limit = options_.threshold_mode == ThresholdMode::REL ? best_ * (1 + sign * options_.threshold)
                                                                     : best_ + sign * options_.threshold;
  return options_.mode == Mode::MIN ? metric < limit : metric > limit;
}

void ReduceLROnPlateau::reduce() {
  auto& groups = optimizer_.param_groups();
  if (options_.min_lr.size() != 1 && options_.min_lr.size() != groups.size())
    throw InvalidArgument(lockstep::str("ReduceLROnPlateau: there are ", groups.size(),
                                        " parameter groups now and ", options_.min_lr.size(),
                                        " values of min_lr"));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double before = groups[g].options().get_lr();
    const double lowest = options_.min_lr[options_.min_lr.size() == 1 ? 0 : g];
    const double after = std::max(before * options_.factor, lowest);
    if (before - after > options_.eps) groups[g].options().set_lr(after);
  }
}

void ReduceLROnPlateau::step(double metric) {
  ++last_epoch_;
  if (is_better(metric)) {
    best_ = metric;
    num_bad_epochs_ = 0;
  } else {
    ++num_bad_epochs_;
  }
  if (in_cooldown()) {
    --cooldown_counter_;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ > options_.patience) {
    reduce();
    cooldown_counter_ = options_.cooldown;
    num_bad_epochs_ = 0;
  }
}

std::vector<double> ReduceLROnPlateau::get_last_lr() const {
  std::vector<double> rates;
  for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

NamedTensors ReduceLROnPlateau::state_dict() const {
  const auto whole = [](std::int64_t value) { return at::scalar_tensor(value, at::kLong); };
  return {{"best", at::scalar_tensor(best_, at::kDouble)},
          {"num_bad_epochs", whole(num_bad_epochs_)},
          {"cooldown_counter", whole(cooldown_counter_)},
          {"last_epoch", whole(last_epoch_)},
          {"last_lr", at::tensor(get_last_lr(), at::kDouble)}};
}

void ReduceLROnPlateau::load_state_dict(const NamedTensors& tensors) {
  const SchedulerState state(tensors,
                             {"best", "num_bad_epochs", "cooldown_counter", "last_epoch", "last_lr"});
  const std::vector<double> rates = state.numbers("last_lr");
  auto& groups = optimizer_.param_groups();
  if (rates.size() != groups.size())
    throw InvalidArgument(lockstep::str("ReduceLROnPlateau::load_state_dict: the state has ", rates.size(),
                                        " parameter groups, the optimiser ", groups.size()));
  const auto whole = [&](const char* name) { return static_cast<std::int64_t>(state.number(name)); };
  const double best = state.number("best");
  const std::int64_t bad = whole("num_bad_epochs");
  const std::int64_t cooldown = whole("cooldown_counter");
  last_epoch_ = whole("last_epoch");
  best_ = best;
  num_bad_epochs_ = bad;
  cooldown_counter_ = cooldown;
  for (std::size_t g = 0; g < groups.size(); ++g) groups[g].options().set_lr(rates[g]);
}

}  // namespace lockstep::optim
