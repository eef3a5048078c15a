// Schedulers set the learning rates of an optimiser's parameter groups as training goes on. Names, arguments
// and values are those of torch.optim.lr_scheduler. They serve any torch::optim::Optimizer, Lockstep's or
// libtorch's.
//
//   dist::optim::CosineAnnealingLR scheduler(optimizer, /*t_max=*/90);
//   for (int epoch = 0; epoch < 90; ++epoch) {
//     train_epoch();                                        // optimizer.step() ...
//     scheduler.step();
//   }
//
// A plan of the program's own, such as a warm-up before another schedule (lr_schedules.h):
//
//   namespace schedule = dist::optim::schedule;
//   dist::optim::SequentialLR scheduler(optimizer,
//                                       {schedule::linear(0.01, 1, 5), schedule::cosine(85)}, {5});
//
// Base rates   are the groups' rates when the scheduler is made. It sets the rates of step 0 at once. Make
//              one scheduler per optimiser. Several at once are a ChainedScheduler, in which each takes the
//              result of the one before as its base. (torch's schedulers multiply the present rate; torch's
//              LambdaLR and cosine with eta_min overwrite it.) A group added later is scheduled from the next
//              step on, with its rate at that time as base.
// Steps        The program chooses the unit. step() goes to the next step; step(3.5) to any.
// State        state_dict() and load_state_dict() as the optimiser's (save_state_dict() writes it,
//              load_tensors() reads it). Loading sets the rates of that step. The arguments of a schedule are
//              not saved, so construct it with the same ones.
// Ranks        No communication: every rank counts the same steps. A ReduceLROnPlateau must see the same
//              metric on every rank, so all_reduce it before.
// Lifetime     The optimiser outlives its scheduler.
// Fails        InvalidArgument: arguments out of range, a number of schedules that is neither 1 nor that of
//              the groups, an invalid state dict.
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
  // Sets what else changes at a step.
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
// one of them. With other optimisers it is an InvalidArgument.
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(torch::optim::Optimizer& optimizer, const schedule::OneCycleOptions& options);
  // `max_lrs` has a highest rate for each group, in place of options.max_lr.
  OneCycleLR(torch::optim::Optimizer& optimizer, const std::vector<double>& max_lrs,
             const schedule::OneCycleOptions& options);

 private:
  void apply(double epoch) override;
  std::function<double(double step)> momentum_;  // empty without cycle_momentum
};

// Takes schedules, not schedulers: schedule::linear(...), not LinearLR(optimizer, ...).
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
