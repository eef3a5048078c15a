// Schedulers: they set the learning rates of an optimiser's parameter groups as training goes on, with the
// names, arguments and values of torch.optim.lr_scheduler. For any torch::optim::Optimizer, Lockstep's or
// libtorch's.
//
//   dist::optim::CosineAnnealingLR scheduler(optimizer, /*t_max=*/90);
//   for (int epoch = 0; epoch < 90; ++epoch) {
//     train_epoch();                                        // optimizer.step() ...
//     scheduler.step();
//   }
//
// Warm-up, then anything: a scheduler of one's own plan (lr_schedules.h).
//
//   namespace schedule = dist::optim::schedule;
//   dist::optim::SequentialLR scheduler(optimizer,
//                                       {schedule::linear(0.01, 1, 5), schedule::cosine(85)}, {5});
//
// Base rates   are those that the groups have when the scheduler is made, which at once sets the rates of
//              step 0. Make one scheduler per optimiser; several at once are a ChainedScheduler, in which
//              each takes what the one before it gives as its base. (torch's schedulers multiply what they
//              find, and torch's LambdaLR and cosine with eta_min overwrite it.) A group that is added later
//              is scheduled from the next step on, its rate at that time being its base.
// Steps        in what unit they are counted is the program's choice. step() goes to the next; step(3.5) to
//              any.
// State        state_dict() and load_state_dict() as the optimiser's (save_state_dict() writes it,
//              load_tensors() reads it). Loading sets the rates of that step. What a schedule is made of is
//              not saved: make it with the same arguments.
// Ranks        no communication: every rank counts the same steps. A ReduceLROnPlateau must see the same
//              metric on every rank: all_reduce it before.
// Lifetime     the optimiser outlives its scheduler.
// Fails        InvalidArgument: arguments out of range, a number of schedules that is not 1 or that of the
//              groups, a state dict that is not one.
#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <utility>
#include <vector>

#include "lockstep/optim/lr_schedules.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::optim {

class LRScheduler {
 public:
  // One schedule for all groups, or one for each.
  LRScheduler(torch::optim::Optimizer& optimizer, Schedule schedule);
  LRScheduler(torch::optim::Optimizer& optimizer, std::vector<Schedule> schedules);
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  void step() { step(last_epoch_ + 1); }
  void step(double epoch);

  double last_epoch() const { return last_epoch_; }
  const std::vector<double>& get_last_lr() const { return last_lr_; }  // of each group
  const std::vector<double>& base_lrs() const { return base_lrs_; }

  // "last_epoch", "base_lrs", "last_lr"
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& tensors);

 protected:
  torch::optim::Optimizer& optimizer() { return optimizer_; }

 private:
  // What else changes at a step.
  virtual void apply(double /*epoch*/) {}

  torch::optim::Optimizer& optimizer_;
  std::vector<Schedule> schedules_;
  std::vector<double> base_lrs_;
  std::vector<double> last_lr_;
  double last_epoch_ = 0;
};

class LambdaLR : public LRScheduler {
 public:
  using Lambda = std::function<double(double epoch)>;
  LambdaLR(torch::optim::Optimizer& optimizer, Lambda lambda)
      : LRScheduler(optimizer, schedule::lambda(std::move(lambda))) {}
  LambdaLR(torch::optim::Optimizer& optimizer, const std::vector<Lambda>& lambdas);
};

class StepLR : public LRScheduler {
 public:
  StepLR(torch::optim::Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1)
      : LRScheduler(optimizer, schedule::step(step_size, gamma)) {}
};

class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(torch::optim::Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma = 0.1)
      : LRScheduler(optimizer, schedule::multi_step(std::move(milestones), gamma)) {}
};

class ConstantLR : public LRScheduler {
 public:
  explicit ConstantLR(torch::optim::Optimizer& optimizer, double factor = 1.0 / 3,
                      std::int64_t total_iters = 5)
      : LRScheduler(optimizer, schedule::constant(factor, total_iters)) {}
};

class LinearLR : public LRScheduler {
 public:
  explicit LinearLR(torch::optim::Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
                    std::int64_t total_iters = 5)
      : LRScheduler(optimizer, schedule::linear(start_factor, end_factor, total_iters)) {}
};

class ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(torch::optim::Optimizer& optimizer, double gamma)
      : LRScheduler(optimizer, schedule::exponential(gamma)) {}
};

class PolynomialLR : public LRScheduler {
 public:
  explicit PolynomialLR(torch::optim::Optimizer& optimizer, std::int64_t total_iters = 5, double power = 1)
      : LRScheduler(optimizer, schedule::polynomial(total_iters, power)) {}
};

class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(torch::optim::Optimizer& optimizer, std::int64_t t_max, double eta_min = 0)
      : LRScheduler(optimizer, schedule::cosine(t_max, eta_min)) {}
};

class CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(torch::optim::Optimizer& optimizer, std::int64_t t_0, std::int64_t t_mult = 1,
                              double eta_min = 0)
      : LRScheduler(optimizer, schedule::cosine_warm_restarts(t_0, t_mult, eta_min)) {}
};

// cycle_momentum moves `momentum`, or the first of `betas`, of Lockstep's and libtorch's optimisers that have
// one of them, and is an InvalidArgument with others.
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(torch::optim::Optimizer& optimizer, const schedule::OneCycleOptions& options);
  // A highest rate for each group, in place of options.max_lr.
  OneCycleLR(torch::optim::Optimizer& optimizer, const std::vector<double>& max_lrs,
             const schedule::OneCycleOptions& options);

 private:
  void apply(double epoch) override;
  std::function<double(double step)> momentum_;  // empty without cycle_momentum
};

// Of schedules, not of schedulers: schedule::linear(...), not LinearLR(optimizer, ...).
class SequentialLR : public LRScheduler {
 public:
  SequentialLR(torch::optim::Optimizer& optimizer, std::vector<Schedule> schedules,
               std::vector<std::int64_t> milestones)
      : LRScheduler(optimizer, schedule::sequential(std::move(schedules), std::move(milestones))) {}
};

class ChainedScheduler : public LRScheduler {
 public:
  ChainedScheduler(torch::optim::Optimizer& optimizer, std::vector<Schedule> schedules)
      : LRScheduler(optimizer, schedule::chained(std::move(schedules))) {}
};

}  // namespace lockstep::optim
