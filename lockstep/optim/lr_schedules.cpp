#include "lockstep/optim/lr_schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::optim {
namespace {

template <typename Value> void expect(bool holds, const char* what, Value value, const char* wanted) {
  if (!holds)
    throw InvalidArgument(lockstep::str("schedule: ", what, " is ", value, " and must be ", wanted));
}

void expect_steps(const char* what, std::int64_t value) { expect(value >= 1, what, value, "1 or more"); }

double number(std::int64_t value) { return static_cast<double>(value); }

// Goes from 1 to 0 as `share` goes from 0 to 1.
double half_cosine(double share) { return (1 + std::cos(std::numbers::pi * share)) / 2; }

// A part of a one-cycle schedule: until step `end`, from one value to another.
struct Phase {
  double end;
  double from;
  double to;
};

double value_at(const std::vector<Phase>& phases, schedule::Anneal strategy, double step) {
  double start = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const auto& [end, from, to] = phases[i];
    if (step <= end || i + 1 == phases.size()) {
      const double share = std::min((step - start) / (end - start), 1.0);
      return strategy == schedule::Anneal::COS ? to + (from - to) * half_cosine(share)
                                               : from + (to - from) * share;
    }
    start = end;
  }
  return 0;
}

void check(const schedule::OneCycleOptions& o) {
  expect(o.max_lr >= 0, "max_lr", o.max_lr, "0 or more");
  expect(o.total_steps >= 2, "total_steps", o.total_steps, "2 or more");
  expect(o.pct_start >= 0 && o.pct_start <= 1, "pct_start", o.pct_start, "in [0, 1]");
  expect(o.div_factor > 0, "div_factor", o.div_factor, "above 0");
  expect(o.final_div_factor > 0, "final_div_factor", o.final_div_factor, "above 0");
}

// `last` is the value at which the last phase ends.
std::vector<Phase> phases_of(const schedule::OneCycleOptions& o, double low, double high, double last) {
  const double rise = o.pct_start * number(o.total_steps);
  const double end = number(o.total_steps) - 1;
  if (o.three_phase) return {{rise - 1, low, high}, {2 * rise - 2, high, low}, {end, low, last}};
  return {{rise - 1, low, high}, {end, high, last}};
}

}  // namespace

namespace schedule {

Schedule step(std::int64_t step_size, double gamma) {
  expect_steps("step_size", step_size);
  return [=](double at, double base_lr) {
    return base_lr * std::pow(gamma, std::floor(at / number(step_size)));
  };
}

Schedule multi_step(std::vector<std::int64_t> milestones, double gamma) {
  std::sort(milestones.begin(), milestones.end());
  return [milestones = std::move(milestones), gamma](double at, double base_lr) {
    const auto passed =
        std::upper_bound(milestones.begin(), milestones.end(), at,
                         [](double value, std::int64_t milestone) { return value < number(milestone); });
    return base_lr * std::pow(gamma, passed - milestones.begin());
  };
}

Schedule exponential(double gamma) {
  return [=](double at, double base_lr) { return base_lr * std::pow(gamma, at); };
}

Schedule constant(double factor, std::int64_t total_iters) {
  expect(factor >= 0 && factor <= 1, "factor", factor, "in [0, 1]");
  return [=](double at, double base_lr) { return at < number(total_iters) ? base_lr * factor : base_lr; };
}

Schedule linear(double start_factor, double end_factor, std::int64_t total_iters) {
  expect(start_factor >= 0 && start_factor <= 1, "start_factor", start_factor, "in [0, 1]");
  expect(end_factor >= 0 && end_factor <= 1, "end_factor", end_factor, "in [0, 1]");
  expect_steps("total_iters", total_iters);
  return [=](double at, double base_lr) {
    const double share = std::min(at / number(total_iters), 1.0);
    return base_lr * (start_factor + (end_factor - start_factor) * share);
  };
}

Schedule polynomial(std::int64_t total_iters, double power) {
  expect_steps("total_iters", total_iters);
  return [=](double at, double base_lr) {
    return base_lr * std::pow(1 - std::min(at / number(total_iters), 1.0), power);
  };
}

Schedule cosine(std::int64_t t_max, double eta_min) {
  expect_steps("t_max", t_max);
  return [=](double at, double base_lr) {
    return eta_min + (base_lr - eta_min) * half_cosine(at / number(t_max));
  };
}

Schedule cosine_warm_restarts(std::int64_t t_0, std::int64_t t_mult, double eta_min) {
  expect_steps("t_0", t_0);
  expect_steps("t_mult", t_mult);
  return [=](double at, double base_lr) {
    double length = number(t_0);
    double since = at;
    if (t_mult == 1) {
      since = std::fmod(at, length);
    } else {
      while (since >= length) {
        since -= length;
        length *= number(t_mult);
      }
    }
    return eta_min + (base_lr - eta_min) * half_cosine(since / length);
  };
}

Schedule lambda(std::function<double(double step)> lambda) {
  return [lambda = std::move(lambda)](double at, double base_lr) { return base_lr * lambda(at); };
}

Schedule warmup_cosine(std::int64_t warmup_steps, std::int64_t total_steps, double lowest) {
  expect(warmup_steps >= 0, "warmup_steps", warmup_steps, "0 or more");
  expect(total_steps > warmup_steps, "total_steps", total_steps, "more than warmup_steps");
  expect(lowest >= 0 && lowest <= 1, "lowest", lowest, "in [0, 1]");
  return [=](double at, double base_lr) {
    return linear_warmup_cosine_decay(std::min(at, number(total_steps)), warmup_steps, total_steps,
                                      lowest * base_lr, base_lr);
  };
}

Schedule one_cycle(const OneCycleOptions& options) {
  check(options);
  const double start = options.max_lr / options.div_factor;
  const auto phases = phases_of(options, start, options.max_lr, start / options.final_div_factor);
  return [=](double at, double /*base_lr*/) { return value_at(phases, options.anneal_strategy, at); };
}

std::function<double(double step)> one_cycle_momentum(const OneCycleOptions& options) {
  check(options);
  const auto phases = phases_of(options, options.max_momentum, options.base_momentum, options.max_momentum);
  return [=](double at) { return value_at(phases, options.anneal_strategy, at); };
}

Schedule sequential(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones) {
  if (schedules.empty() || milestones.size() != schedules.size() - 1)
    throw InvalidArgument(lockstep::str("schedule: ", schedules.size(),
                                        " schedules in sequence need one milestone less, not ",
                                        milestones.size()));
  if (!std::is_sorted(milestones.begin(), milestones.end()))
    throw InvalidArgument("schedule: the milestones of a sequence must rise");
  return [schedules = std::move(schedules), milestones = std::move(milestones)](double at, double base_lr) {
    std::size_t which = 0;
    while (which < milestones.size() && at >= number(milestones[which])) ++which;
    return schedules[which](which == 0 ? at : at - number(milestones[which - 1]), base_lr);
  };
}

Schedule chained(std::vector<Schedule> schedules) {
  if (schedules.empty()) throw InvalidArgument("schedule: no schedules to chain");
  return [schedules = std::move(schedules)](double at, double base_lr) {
    for (const Schedule& next : schedules) base_lr = next(at, base_lr);
    return base_lr;
  };
}

}  // namespace schedule

double linear_scaling(double base_lr, std::int64_t base_batch, std::int64_t batch) {
  expect_steps("base_batch", base_batch);
  expect_steps("batch", batch);
  return base_lr * number(batch) / number(base_batch);
}

double linear_warmup_cosine_decay(double step, std::int64_t warmup_steps, std::int64_t total_steps,
                                  double base_lr, double max_lr) {
  const double warmup = number(warmup_steps);
  if (step < warmup) return base_lr + (max_lr - base_lr) * step / warmup;
  return base_lr + (max_lr - base_lr) * half_cosine((step - warmup) / (number(total_steps) - warmup));
}

}  // namespace lockstep::optim
