// MetricMode: whether a metric is better when it is smaller (a loss) or larger (an accuracy). Pure.
//
//   is_better(0.20, 0.25, dist::MetricMode::MIN);                // true
//   is_better(0.91, 0.90, dist::MetricMode::MAX, 0.02);          // false: not by more than 0.02
//
// NaN  is never better, and nothing is better by comparison with NaN.
#pragma once

namespace lockstep {

enum class MetricMode { MIN, MAX };

// Whether `metric` is better than `best` by more than `min_delta`.
constexpr bool is_better(double metric, double best, MetricMode mode, double min_delta = 0) {
  return mode == MetricMode::MIN ? metric < best - min_delta : metric > best + min_delta;
}

}  // namespace lockstep
