// Scheduler: DeepSpeed's schedules (schedules.h) as a learning-rate scheduler of an optimiser. The engine
// makes one of the configuration; a program that has its own optimiser can make one, too.
//
//   namespace deepspeed = lockstep::compat::deepspeed;
//   deepspeed::Scheduler scheduler(optimizer, deepspeed::WarmupLR{.warmup_num_steps = 100});
//   scheduler.step();                                                    // after each step of the optimiser
//
// All else: optim/lr_scheduler.h.
// Throws  InvalidArgument: options out of range.
#pragma once

#include "lockstep/compat/deepspeed/schedules.h"
#include "lockstep/optim/lr_scheduler.h"

namespace lockstep::compat::deepspeed {

class Scheduler : public optim::LRScheduler {
 public:
  Scheduler(torch::optim::Optimizer& optimizer, const SchedulePlan& plan);

 private:
  void apply(double epoch) override;

  const SchedulePlan plan_;
};

}  // namespace lockstep::compat::deepspeed
