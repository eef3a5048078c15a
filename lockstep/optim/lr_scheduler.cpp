#include "lockstep/optim/lr_scheduler.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/scheduler_state.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::optim {
namespace {

// If the options are of this type, sets their momentum to `value` and returns true.
template <typename Options> bool set_momentum_of(torch::optim::OptimizerOptions& options, double value) {
  auto* own = dynamic_cast<Options*>(&options);
  if (own == nullptr) return false;
  if constexpr (requires { own->momentum(value); }) {
    own->momentum(value);
  } else {
    own->betas(std::make_tuple(value, std::get<1>(own->betas())));
  }
  return true;
}

template <typename... Options> bool set_momentum(torch::optim::OptimizerOptions& options, double value) {
  return (set_momentum_of<Options>(options, value) || ...);
}

}  // namespace

LRScheduler::LRScheduler(torch::optim::Optimizer& optimizer, Schedule schedule)
    : LRScheduler(optimizer, std::vector<Schedule>{std::move(schedule)}) {}

LRScheduler::LRScheduler(torch::optim::Optimizer& optimizer, std::vector<Schedule> schedules)
    : optimizer_(optimizer), schedules_(std::move(schedules)) {
  if (schedules_.size() != 1 && schedules_.size() != optimizer.param_groups().size())
    throw InvalidArgument(lockstep::str("LRScheduler: ", schedules_.size(), " schedules for ",
                                        optimizer.param_groups().size(),
                                        " parameter groups; give one for all, or one for each"));
  LRScheduler::step(0);
}

void LRScheduler::step(double epoch) {
  if (!(epoch >= 0)) throw InvalidArgument(lockstep::str("LRScheduler: there is no step ", epoch));
  auto& groups = optimizer_.param_groups();
  if (schedules_.size() > 1 && groups.size() > schedules_.size())
    throw InvalidArgument(lockstep::str("LRScheduler: there are ", groups.size(),
                                        " parameter groups now and schedules for ", schedules_.size()));
  last_lr_.clear();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (g == base_lrs_.size()) base_lrs_.push_back(groups[g].options().get_lr());
    last_lr_.push_back(schedules_[schedules_.size() == 1 ? 0 : g](epoch, base_lrs_[g]));
    groups[g].options().set_lr(last_lr_.back());
  }
  last_epoch_ = epoch;
  apply(epoch);
}

NamedTensors LRScheduler::state_dict() const {
  return {{"last_epoch", at::scalar_tensor(last_epoch_, at::kDouble)},
          {"base_lrs", at::tensor(base_lrs_, at::kDouble)},
          {"last_lr", at::tensor(last_lr_, at::kDouble)}};
}

void LRScheduler::load_state_dict(const NamedTensors& tensors) {
  SchedulerState state(tensors, {"last_epoch", "base_lrs", "last_lr"});
  const double epoch = state.number("last_epoch");
  std::vector<double> bases = state.numbers("base_lrs");
  if (bases.size() > optimizer_.param_groups().size())
    throw InvalidArgument(lockstep::str("LRScheduler::load_state_dict: the state has ", bases.size(),
                                        " parameter groups, the optimiser ",
                                        optimizer_.param_groups().size()));
  if (!(epoch >= 0))
    throw InvalidArgument(lockstep::str("LRScheduler::load_state_dict: there is no step ", epoch));
  base_lrs_ = std::move(bases);
  step(epoch);
}

LambdaLR::LambdaLR(torch::optim::Optimizer& optimizer, const std::vector<Lambda>& lambdas)
    : LRScheduler(optimizer, [&] {
        std::vector<Schedule> schedules;
        for (const Lambda& lambda : lambdas) schedules.push_back(schedule::lambda(lambda));
        return schedules;
      }()) {}

OneCycleLR::OneCycleLR(torch::optim::Optimizer& optimizer, const schedule::OneCycleOptions& options)
    : OneCycleLR(optimizer, std::vector<double>{options.max_lr}, options) {}

OneCycleLR::OneCycleLR(torch::optim::Optimizer& optimizer, const std::vector<double>& max_lrs,
                       const schedule::OneCycleOptions& options)
    : LRScheduler(optimizer, [&] {
        std::vector<Schedule> schedules;
        for (const double max_lr : max_lrs) {
          schedule::OneCycleOptions own = options;
          own.max_lr = max_lr;
          schedules.push_back(schedule::one_cycle(own));
        }
        return schedules;
      }()) {
  if (options.cycle_momentum) momentum_ = schedule::one_cycle_momentum(options);
  OneCycleLR::apply(0);
}

void OneCycleLR::apply(double epoch) {
  if (!momentum_) return;
  for (auto& group : optimizer().param_groups()) {
    if (!set_momentum<SGDOptions, AdamOptions, AdamWOptions, LARSOptions, LAMBOptions,
                      torch::optim::SGDOptions, torch::optim::AdamOptions, torch::optim::AdamWOptions,
                      torch::optim::RMSpropOptions>(group.options(), momentum_(epoch)))
      throw InvalidArgument(
          "OneCycleLR: this optimiser has no momentum that is known here; say cycle_momentum = false");
  }
}

}  // namespace lockstep::optim
