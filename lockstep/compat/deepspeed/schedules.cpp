#include "lockstep/compat/deepspeed/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::compat::deepspeed {
namespace {

double as_number(std::int64_t value) { return static_cast<double>(value); }

template <typename Value>
void expect_in_schedule(bool holds, const char* option, Value value, const char* wanted) {
  if (!holds)
    throw InvalidArgument(
        lockstep::str("DeepSpeed scheduler: ", option, " is ", value, " and must be ", wanted));
}

double warmup_steps(std::int64_t given) { return as_number(std::max<std::int64_t>(2, given)); }

// w(i), of 0 <= i < steps.
double warmup_factor(WarmupType type, double i, double steps) {
  return type == WarmupType::LOG ? std::log(i + 1) / std::log(steps) : i / steps;
}

double lr_of(const WarmupLR& plan, double step, double base_lr) {
  const double i = step - 1, steps = warmup_steps(plan.warmup_num_steps);
  const double max = plan.warmup_max_lr.value_or(base_lr);
  if (i < 0) return plan.warmup_min_lr;
  const double factor = i < steps ? warmup_factor(plan.warmup_type, i, steps) : 1;
  return plan.warmup_min_lr + (max - plan.warmup_min_lr) * factor;
}

double lr_of(const WarmupDecayLR& plan, double step, double /*base_lr*/) {
  const double i = step - 1, steps = warmup_steps(plan.warmup_num_steps);
  if (i < 0) return plan.warmup_min_lr;
  const double total = as_number(plan.total_num_steps);
  const double factor = i < steps ? warmup_factor(plan.warmup_type, i, steps)
                                  : std::max(0.0, (total - i) / std::max(1.0, total - steps));
  return plan.warmup_min_lr + (plan.warmup_max_lr - plan.warmup_min_lr) * factor;
}

double lr_of(const WarmupCosineLR& plan, double step, double base_lr) {
  const double i = step - 1, steps = warmup_steps(plan.warmup_num_steps);
  if (i < 0) return 0;
  if (i < steps) {
    const double factor = warmup_factor(plan.warmup_type, i, steps);
    return base_lr * (plan.warmup_min_ratio + (1 - plan.warmup_min_ratio) * factor);
  }
  const double length = std::max(1.0, as_number(plan.total_num_steps) - steps);
  const double progress = std::min(1.0, (i - steps + 1) / length);
  const double half_cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return base_lr * std::max(0.0, plan.cos_min_ratio + (1 - plan.cos_min_ratio) * half_cosine);
}

double second_size(const OneCycle& plan) {
  return as_number(plan.cycle_second_step_size.value_or(plan.cycle_first_step_size));
}

double cycle_size(const OneCycle& plan) { return as_number(plan.cycle_first_step_size) + second_size(plan); }

// How high within the cycle a step is, from 0 to 1. At the cycle's end the next one would begin, at 0.
double height(const OneCycle& plan, double step) {
  const double first = as_number(plan.cycle_first_step_size), size = cycle_size(plan);
  const double in_cycle = std::fmod(step, size);
  const bool rises = in_cycle <= first;
  const double share = rises ? in_cycle / first : (size - in_cycle) / second_size(plan);
  const auto stairs = rises ? plan.cycle_first_stair_count
                            : plan.cycle_second_stair_count.value_or(plan.cycle_first_stair_count);
  if (stairs <= 0) return share;
  // The product first: a share just below an exact stair would lose the stair.
  const double position = rises ? in_cycle * as_number(stairs) / first
                                : (size - in_cycle) * as_number(stairs) / second_size(plan);
  return std::floor(position) / as_number(stairs);
}

double lr_of(const OneCycle& plan, double step, double /*base_lr*/) {
  const double after = step - cycle_size(plan);
  if (after <= 0) return plan.cycle_min_lr + (plan.cycle_max_lr - plan.cycle_min_lr) * height(plan, step);
  if (plan.decay_step_size == 0) return plan.cycle_min_lr;
  return plan.cycle_min_lr / (1 + plan.decay_lr_rate * after / as_number(plan.decay_step_size));
}

double lr_of(const LRRangeTest& plan, double step, double /*base_lr*/) {
  const double interval = step / as_number(plan.lr_range_test_step_size);
  return plan.lr_range_test_min_lr *
         (1 +
          plan.lr_range_test_step_rate * (plan.lr_range_test_staircase ? std::floor(interval) : interval));
}

void check_warmup(std::int64_t steps) {
  expect_in_schedule(steps >= 1, "warmup_num_steps", steps, "1 or more");
}
void check_total(std::int64_t total) {
  expect_in_schedule(total >= 1, "total_num_steps", total, "1 or more");
}

void check_one(const WarmupLR& plan) { check_warmup(plan.warmup_num_steps); }
void check_one(const WarmupDecayLR& plan) {
  check_warmup(plan.warmup_num_steps);
  check_total(plan.total_num_steps);
}
void check_one(const WarmupCosineLR& plan) {
  check_warmup(plan.warmup_num_steps);
  check_total(plan.total_num_steps);
}
void check_one(const OneCycle& plan) {
  expect_in_schedule(plan.cycle_first_step_size >= 1, "cycle_first_step_size", plan.cycle_first_step_size,
                     "1 or more");
  expect_in_schedule(second_size(plan) >= 1, "cycle_second_step_size", second_size(plan), "1 or more");
  expect_in_schedule(plan.decay_step_size >= 0, "decay_step_size", plan.decay_step_size, "0 or more");
}
void check_one(const LRRangeTest& plan) {
  expect_in_schedule(plan.lr_range_test_step_size >= 1, "lr_range_test_step_size",
                     plan.lr_range_test_step_size, "1 or more");
}

}  // namespace

void check_schedule(const SchedulePlan& plan) {
  std::visit([](const auto& one) { check_one(one); }, plan);
}

double lr_at(const SchedulePlan& plan, double step, double base_lr) {
  return std::visit([&](const auto& one) { return lr_of(one, step, base_lr); }, plan);
}

std::optional<double> momentum_at(const SchedulePlan& plan, double step) {
  const auto* const cycle = std::get_if<OneCycle>(&plan);
  if (cycle == nullptr || !cycle->cycle_momentum) return std::nullopt;
  if (step == 0) return cycle->cycle_min_mom;
  const double after = step - cycle_size(*cycle);
  if (after <= 0)
    return cycle->cycle_max_mom - (cycle->cycle_max_mom - cycle->cycle_min_mom) * height(*cycle, step);
  if (cycle->decay_step_size == 0) return cycle->cycle_max_mom;
  return cycle->cycle_max_mom * (1 + cycle->decay_mom_rate * after / as_number(cycle->decay_step_size));
}

}  // namespace lockstep::compat::deepspeed
