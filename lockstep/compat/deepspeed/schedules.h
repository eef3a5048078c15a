// DeepSpeed's learning-rate schedules, as pure functions of the step and as a scheduler of an optimiser.
//
//   namespace deepspeed = lockstep::compat::deepspeed;
//   const deepspeed::WarmupDecayLR plan{.total_num_steps = 1000, .warmup_num_steps = 100};
//   deepspeed::lr_at(plan, /*step=*/50, /*base_lr=*/1e-3);
//
// Steps   counted from 0: step s is what an optimiser takes as its (s + 1)-th step. DeepSpeed numbers its
//         schedulers from -1, so its `last_batch_iteration` is i = s - 1. Step 0 has the lowest rate.
//
//   warm-up factor w(i), n = max(2, warmup_num_steps):   log: ln(i + 1) / ln(n)         linear: i / n
//   WarmupLR         i < n: min + (max - min) w(i)       then max
//   WarmupDecayLR    i < n: min + (max - min) w(i)       then min + (max - min) max(0, (total - i) / (total -
//   n)) WarmupCosineLR   i < n: base (min_ratio + (1 - min_ratio) w(i))
//                    then base (cos_min + (1 - cos_min) (1 + cos(pi min(1, (i - n + 1) / (total - n)))) / 2)
//   OneCycle         from cycle_min_lr up to cycle_max_lr in first_step_size steps and back in
//                    second_step_size; then cycle_min_lr / (1 + decay_lr_rate (s - both) / decay_step_size)
//   LRRangeTest      min_lr (1 + step_rate s / step_size); staircase: with s / step_size rounded down
//
// OneCycle moves beta1 of an optimiser that has betas the other way, between cycle_min_mom and cycle_max_mom,
// and sets beta2 to 0.99. Before the first step beta1 is cycle_min_mom, as in DeepSpeed.
// Throws  InvalidArgument: options out of range.
// Source  deepspeed/runtime/lr_schedules.py.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace lockstep::compat::deepspeed {

enum class WarmupType { LOG, LINEAR };

struct WarmupLR {
  double warmup_min_lr = 0;
  std::optional<double> warmup_max_lr = {};  // default: the optimiser's rate
  std::int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::LOG;
};

struct WarmupDecayLR {
  std::int64_t total_num_steps = 0;
  double warmup_min_lr = 0;
  double warmup_max_lr = 0.001;
  std::int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::LOG;
};

struct WarmupCosineLR {
  std::int64_t total_num_steps = 0;
  double warmup_min_ratio = 0;
  std::int64_t warmup_num_steps = 1000;
  double cos_min_ratio = 0.0001;
  WarmupType warmup_type = WarmupType::LOG;
};

struct OneCycle {
  double cycle_min_lr = 0;
  double cycle_max_lr = 0;
  double decay_lr_rate = 0;
  std::int64_t cycle_first_step_size = 2000;
  std::optional<std::int64_t> cycle_second_step_size = {};    // default: as the first
  std::int64_t cycle_first_stair_count = 0;                   // 0: no stairs
  std::optional<std::int64_t> cycle_second_stair_count = {};  // default: as the first
  std::int64_t decay_step_size = 0;                           // 0: no decay
  bool cycle_momentum = true;
  double cycle_min_mom = 0.8;
  double cycle_max_mom = 0.9;
  double decay_mom_rate = 0;
};

struct LRRangeTest {
  double lr_range_test_min_lr = 1e-3;
  std::int64_t lr_range_test_step_size = 2000;
  double lr_range_test_step_rate = 1;
  bool lr_range_test_staircase = false;
};

using SchedulePlan = std::variant<WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest>;

// Throws InvalidArgument for options out of range, naming the option.
void check_schedule(const SchedulePlan& plan);
double lr_at(const SchedulePlan& plan, double step, double base_lr);
// beta1 of a OneCycle with cycle_momentum; nothing for the others.
std::optional<double> momentum_at(const SchedulePlan& plan, double step);
inline constexpr double ONE_CYCLE_BETA2 = 0.99;

}  // namespace lockstep::compat::deepspeed
