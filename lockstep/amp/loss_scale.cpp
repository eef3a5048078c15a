#include "lockstep/amp/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

template <typename Value> void require(bool ok, const char* name, const Value& value, const char* rule) {
  if (!ok) throw InvalidArgument(str("loss scale: ", name, " is ", value, "; it must be ", rule));
}

LossScaleOptions checked(const LossScaleOptions& options) {
  require(options.init_scale > 0 && options.init_scale <= std::numeric_limits<float>::max(), "init_scale",
          options.init_scale, "positive and within float32");
  require(options.growth_factor > 1, "growth_factor", options.growth_factor, "above 1");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
          "above 0 and below 1");
  require(options.growth_interval >= 1, "growth_interval", options.growth_interval, "at least 1");
  require(options.hysteresis >= 1, "hysteresis", options.hysteresis, "at least 1");
  require(options.min_scale >= 0 && options.min_scale <= options.max_scale, "min_scale", options.min_scale,
          "at least 0 and not above max_scale");
  return options;
}

std::int64_t first_clean_step(const LossScaleOptions& options) {
  return options.grows_one_step_late ? -1 : 0;
}

}  // namespace

LossScaleOptions apex_loss_scale() { return {.max_scale = 16777216}; }

LossScaleOptions deepspeed_loss_scale(const DeepSpeedLossScale& options) {
  return {.init_scale = options.init_scale,
          .growth_interval = options.growth_interval,
          .hysteresis = options.hysteresis,
          .consecutive_hysteresis = options.consecutive_hysteresis,
          .grows_one_step_late = true,
          .min_scale = options.min_scale,
          .throws_at_min_scale = true};
}

LossScaleOptions megatron_loss_scale(const MegatronLossScale& options) {
  return {.init_scale = options.init_scale,
          .growth_interval = options.growth_interval,
          .hysteresis = options.hysteresis,
          .min_scale = options.min_scale};
}

LossScale::LossScale(const LossScaleOptions& options)
    : options_(checked(options)),
      value_(static_cast<float>(std::min(options.init_scale, options.max_scale))),
      clean_steps_(first_clean_step(options)),
      hysteresis_left_(options.hysteresis) {}

void LossScale::set_options(const LossScaleOptions& options) { options_ = checked(options); }

void LossScale::set_trackers(std::int64_t growth_tracker, int hysteresis_left) {
  clean_steps_ = growth_tracker;
  hysteresis_left_ = hysteresis_left;
}

void LossScale::update(bool overflow) {
  if (overflow) {
    clean_steps_ = first_clean_step(options_);
    if (hysteresis_left_ > 1) {
      --hysteresis_left_;
    } else {
      shrink();
    }
    return;
  }
  if (options_.consecutive_hysteresis) hysteresis_left_ = options_.hysteresis;
  if (++clean_steps_ < options_.growth_interval) return;
  clean_steps_ = 0;
  hysteresis_left_ = options_.hysteresis;
  grow();
}

void LossScale::shrink() {
  const auto min = static_cast<float>(options_.min_scale);
  if (options_.throws_at_min_scale && value_ <= min) {
    throw InvalidArgument(
        str("loss scale: gradients overflow at the lowest scale, ", min,
            "; the model diverges, or holds values that float16 cannot: lower the learning rate, train in "
            "bfloat16, or lower min_scale"));
  }
  value_ = std::max(static_cast<float>(value_ * options_.backoff_factor), min);
}

void LossScale::grow() {
  const auto larger = static_cast<float>(value_ * options_.growth_factor);
  if (std::isfinite(larger)) value_ = std::min(larger, static_cast<float>(options_.max_scale));
}

}  // namespace lockstep
