#include "lockstep/train/early_stopping.h"

#include <ATen/ops/scalar_tensor.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/agreed_metric.h"

namespace lockstep {

EarlyStoppingState next_state(EarlyStoppingState state, double metric, const EarlyStoppingOptions& options) {
  constexpr double INFINITE = std::numeric_limits<double>::infinity();
  const double worst = options.mode == MetricMode::MIN ? INFINITE : -INFINITE;
  const bool improves = state.best_step < 0 ? is_better(metric, worst, options.mode)
                                            : is_better(metric, state.best, options.mode, options.min_delta);
  state.bad_steps = improves ? 0 : state.bad_steps + 1;
  if (improves) {
    state.best = metric;
    state.best_step = state.steps;
  }
  ++state.steps;
  return state;
}

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options) : options_(options) {
  if (options.patience < 1)
    throw InvalidArgument(
        lockstep::str("EarlyStopping: patience is ", options.patience, ", expected 1 or more"));
  if (!(options.min_delta >= 0))
    throw InvalidArgument(
        lockstep::str("EarlyStopping: min_delta is ", options.min_delta, ", expected 0 or more"));
}

bool EarlyStopping::step(double metric) {
  const AlikeNumbers alike = {{"patience", static_cast<double>(options_.patience)},
                              {"min_delta", options_.min_delta},
                              {"mode (0: MIN, 1: MAX)", options_.mode == MetricMode::MIN ? 0.0 : 1.0},
                              {"the best metric", state_.best},
                              {"the step of the best metric", static_cast<double>(state_.best_step)},
                              {"the number of steps", static_cast<double>(state_.steps)},
                              {"the number of bad steps", static_cast<double>(state_.bad_steps)}};
  state_ = next_state(state_, agreed_metric("EarlyStopping::step", metric, alike, options_.process_group),
                      options_);
  return should_stop();
}

std::optional<std::int64_t> EarlyStopping::best_step() const {
  if (state_.best_step < 0) return std::nullopt;
  return state_.best_step;
}

NamedTensors EarlyStopping::state_dict() const {
  const auto whole = [](std::int64_t value) { return at::scalar_tensor(value, at::kLong); };
  return {{"best", at::scalar_tensor(state_.best, at::kDouble)},
          {"best_step", whole(state_.best_step)},
          {"steps", whole(state_.steps)},
          {"bad_steps", whole(state_.bad_steps)}};
}

void EarlyStopping::load_state_dict(const NamedTensors& tensors) {
  const auto entry = [&](const char* name) {
    const at::Tensor value = state_entry("EarlyStopping::load_state_dict", tensors, name);
    if (value.numel() == 1) return value;
    throw InvalidArgument(lockstep::str("EarlyStopping::load_state_dict: ", name, " has ", value.numel(),
                                        " values, expected 1"));
  };
  const auto whole = [&](const char* name) { return entry(name).item<std::int64_t>(); };
  const EarlyStoppingState loaded = {.best = entry("best").item<double>(),
                                     .best_step = whole("best_step"),
                                     .steps = whole("steps"),
                                     .bad_steps = whole("bad_steps")};
  state_ = loaded;
}

}  // namespace lockstep
