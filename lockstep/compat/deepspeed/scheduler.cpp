#include "lockstep/compat/deepspeed/scheduler.h"

#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"

namespace lockstep::compat::deepspeed {
namespace {

optim::Schedule checked_schedule(const SchedulePlan& plan) {
  check_schedule(plan);
  return [plan](double step, double base_lr) { return lr_at(plan, step, base_lr); };
}

template <typename... Options> void set_betas(torch::optim::OptimizerOptions& options, double beta1) {
  const auto set = [&](auto* own) {
    if (own != nullptr) own->betas(std::make_tuple(beta1, ONE_CYCLE_BETA2));
  };
  (set(dynamic_cast<Options*>(&options)), ...);
}

}  // namespace

Scheduler::Scheduler(torch::optim::Optimizer& optimizer, const SchedulePlan& plan)
    : LRScheduler(optimizer, checked_schedule(plan)), plan_(plan) {
  Scheduler::apply(0);
}

void Scheduler::apply(double epoch) {
  const auto momentum = momentum_at(plan_, epoch);
  if (!momentum) return;
  for (auto& group : optimizer().param_groups())
    set_betas<optim::AdamOptions, optim::AdamWOptions, optim::LAMBOptions>(group.options(), *momentum);
}

}  // namespace lockstep::compat::deepspeed
