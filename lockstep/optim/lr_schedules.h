// Learning-rate schedules as pure functions of the step. They can be combined, and the schedulers of
// lr_scheduler.h follow them.
//
//   namespace schedule = dist::optim::schedule;
//   const auto plan = schedule::sequential({schedule::linear(0.01, 1.0, 5), schedule::cosine(85)}, {5});
//   plan(0, 0.1);  // the rate of step 0 for a group whose base is 0.1: 0.001
//   dist::optim::LRScheduler scheduler(optimizer, plan);
//
// A schedule returns the rate of a step for a group whose own rate is `base_lr`. Steps are counted from 0, in
// steps or epochs as the program chooses. They may be fractions: 3.5 is the middle of the fourth epoch.
// Values are those of the torch.optim.lr_scheduler of the same name, by its closed formula. Nothing
// accumulates, so a job that resumes at step 1000 has the rate of step 1000. A function that makes a schedule
// throws InvalidArgument for arguments out of range.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::optim {

using Schedule = std::function<double(double step, double base_lr)>;

namespace schedule {

// base_lr * gamma ^ floor(step / step_size)
Schedule step(std::int64_t step_size, double gamma = 0.1);
// base_lr * gamma ^ (how many milestones are at or before `step`)
Schedule multi_step(std::vector<std::int64_t> milestones, double gamma = 0.1);
// base_lr * gamma ^ step
Schedule exponential(double gamma);
// base_lr * factor before total_iters, then base_lr
Schedule constant(double factor = 1.0 / 3, std::int64_t total_iters = 5);
// base_lr times a factor that goes from start_factor to end_factor in total_iters steps, and stays there:
// warm-up
Schedule linear(double start_factor = 1.0 / 3, double end_factor = 1, std::int64_t total_iters = 5);
// base_lr * (1 - step / total_iters) ^ power, then 0
Schedule polynomial(std::int64_t total_iters = 5, double power = 1);
// eta_min + (base_lr - eta_min) * (1 + cos(pi * step / t_max)) / 2; it rises again after t_max, as in torch
Schedule cosine(std::int64_t t_max, double eta_min = 0);
// The same, begun anew after t_0 steps, then t_0 * t_mult, t_0 * t_mult^2, ... (Loshchilov and Hutter, 2016)
Schedule cosine_warm_restarts(std::int64_t t_0, std::int64_t t_mult = 1, double eta_min = 0);
// base_lr * lambda(step)
Schedule lambda(std::function<double(double step)> lambda);

// Linear from lowest * base_lr to base_lr in warmup_steps, then half a cosine back to it at total_steps,
// where it stays (lowest = 0, Goyal et al., 2017, and most language models).
Schedule warmup_cosine(std::int64_t warmup_steps, std::int64_t total_steps, double lowest = 0);

enum class Anneal { COS, LINEAR };
struct OneCycleOptions {
  double max_lr = 0;
  std::int64_t total_steps = 0;
  double pct_start = 0.3;  // share of the steps in which the rate rises
  Anneal anneal_strategy = Anneal::COS;
  bool cycle_momentum = true;  // OneCycleLR moves momentum, or beta1, the other way
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;         // it starts at max_lr / div_factor
  double final_div_factor = 1e4;  // and ends at the start's rate divided by this
  bool three_phase = false;       // falls to the first rate in as many steps as it rose, then further
};
// Smith and Topin, 2017. Does not depend on base_lr. The rate stays constant after total_steps, which in
// torch is an error.
Schedule one_cycle(const OneCycleOptions& options);
// The momentum of that cycle.
std::function<double(double step)> one_cycle_momentum(const OneCycleOptions& options);

// From milestones[i - 1] on it is schedules[i], whose own step is 0 there.
Schedule sequential(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones);
// Each schedule takes the result of the one before as its base, so factors multiply.
Schedule chained(std::vector<Schedule> schedules);

}  // namespace schedule

// The linear scaling rule (Goyal et al., 2017). base_lr is the good rate for base_batch samples per step, of
// all ranks together.
double linear_scaling(double base_lr, std::int64_t base_batch, std::int64_t batch);

// The rate of one step. It rises from base_lr to max_lr in warmup_steps and falls back to base_lr at
// total_steps.
double linear_warmup_cosine_decay(double step, std::int64_t warmup_steps, std::int64_t total_steps,
                                  double base_lr, double max_lr);

}  // namespace lockstep::optim
