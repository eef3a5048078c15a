// LossScale: the factor by which a loss is multiplied so that float16 gradients neither underflow nor
// overflow, and the rule by which it changes. It is the arithmetic of GradScaler and of Apex's scale_loss,
// without tensors. Pure.
//
//   LossScale scale(deepspeed_loss_scale({.growth_interval = 1000}));
//   scale.update(/*overflow=*/true);                    // after every step, taken or skipped
//   scale.value();
//
// Conventions differ in when the scale grows and in how many overflows it takes to shrink. The table begins
// at 16, with a growth interval of 2 clean steps. For clean (C) and overflowed (O) steps it shows the scale
// after each:
//
//                                      C  C  C  O  O  C  O  C  C  C  C  C
//   torch, Apex                       16 32 32 16  8  8  4  4  8  8 16 16
//   Megatron, hysteresis 2            16 32 32 32 16 16  8  8 16 16 32 32
//   DeepSpeed, hysteresis 1           16 16 32 16  8  8  4  4  4  8  8 16
//   DeepSpeed, hysteresis 2           16 16 32 32 16 16  8  8  8 16 16 32
//   DeepSpeed, hysteresis 2, consec.  16 16 32 32 16 16 16 16 16 32 32 64
//
// Arithmetic  in float32, as the scale of torch. Growth beyond its range is ignored.
// Fails       InvalidArgument from the constructor: an impossible factor or interval.
// Sources     torch/amp/grad_scaler.py (2.13), apex/amp/scaler.py, deepspeed/runtime/fp16/loss_scaler.py,
//             megatron/core/optimizer/grad_scaler.py.
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep {

struct LossScaleOptions {
  double init_scale = 65536;
  double growth_factor = 2;             // above 1
  double backoff_factor = 0.5;          // below 1
  std::int64_t growth_interval = 2000;  // number of clean steps in a row until it grows

  // Beyond torch:
  int hysteresis = 1;                   // number of overflows until it shrinks; refilled when the scale grows
  bool consecutive_hysteresis = false;  // refilled by each clean step
  // the first growth after the start or an overflow needs one more clean step
  bool grows_one_step_late = false;
  double min_scale = 0;
  double max_scale = std::numeric_limits<float>::max();
  bool throws_at_min_scale = false;  // an overflow at min_scale is an error
};

// The defaults of each library, changed by what is set in `options`: set init_scale, growth_interval,
// hysteresis or min_scale there.
LossScaleOptions apex_loss_scale();     // 2^16, never above 2^24
struct DeepSpeedLossScale {             // comments give the names in its configuration
  double init_scale = 65536;            // 2 ^ initial_scale_power
  std::int64_t growth_interval = 1000;  // loss_scale_window
  int hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_scale = 1;  // min_loss_scale
};
LossScaleOptions deepspeed_loss_scale(const DeepSpeedLossScale& options = {});
struct MegatronLossScale {
  double init_scale = 4294967296;       // initial-loss-scale
  std::int64_t growth_interval = 1000;  // loss-scale-window
  int hysteresis = 2;
  double min_scale = 1;  // min-loss-scale
};
LossScaleOptions megatron_loss_scale(const MegatronLossScale& options = {});

class LossScale {
 public:
  explicit LossScale(const LossScaleOptions& options);

  double value() const { return value_; }
  const LossScaleOptions& options() const { return options_; }
  void set_options(const LossScaleOptions& options);  // from the next update() on

  // Call it after each step. Throws InvalidArgument if throws_at_min_scale and the scale cannot be lowered.
  void update(bool overflow);
  void set(double value) { value_ = static_cast<float>(value); }

  // The first function: clean steps since the scale last changed or would have, as in torch's state_dict().
  // The second: overflows until it shrinks.
  std::int64_t growth_tracker() const { return clean_steps_; }
  int hysteresis_left() const { return hysteresis_left_; }
  void set_trackers(std::int64_t growth_tracker, int hysteresis_left);

 private:
  void shrink();
  void grow();

  LossScaleOptions options_;
  float value_;
  std::int64_t clean_steps_;
  int hysteresis_left_;
};

}  // namespace lockstep
