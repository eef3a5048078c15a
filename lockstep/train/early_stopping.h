// EarlyStopping: ends a training when a metric has stopped improving, on all ranks after the same step.
//
//   dist::EarlyStopping stopping({.patience = 5, .min_delta = 1e-3});
//   for (int epoch = 0; epoch < 90 && !stopping.should_stop(); ++epoch) {
//     train_epoch();
//     stopping.step(validation_loss());
//   }
//   if (rank == 0) std::printf("best %f, of epoch %ld\n", stopping.best(), *stopping.best_step());
//
// For an accuracy, which is better when larger:
//
//   dist::EarlyStopping stopping({.patience = 5, .mode = dist::MetricMode::MAX});
//
// Improves    A metric improves if it is better than the best so far by more than min_delta. The first one
//             does. NaN never does, nor does an infinite metric of the wrong sign.
// Stops       after `patience` calls of step() in a row without improvement, as Lightning and Keras count.
//             step() may be called further; a metric that improves lifts the stop.
// Collective  step(): every rank of the group gives its metric. One all_gather of some bytes, which blocks.
//             If all ranks give the same number, that one counts, to the bit. Otherwise the mean over the
//             ranks counts, and NaN on one rank counts as NaN. So no rank ever stops alone. To weight each
//             sample alike, pass Mean::across_ranks() or Metrics::across_ranks(). A process without a job is
//             alone.
// State       for checkpoints: CheckpointState::add("stopping", stopping). Options are not saved, so
//             construct it with the same ones. If a run resumes after its stop, should_stop() is true at
//             once.
// Fails       InvalidArgument: patience below 1, min_delta that is negative or NaN, a process outside of the
//             group, an invalid state dict. Mismatch, on all ranks, that names it: options or state that
//             differ from rank to rank.
// Threads     one at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/train/metric_mode.h"

namespace lockstep {

struct EarlyStoppingOptions {
  std::int64_t patience = 3;
  double min_delta = 0;
  MetricMode mode = MetricMode::MIN;
  std::optional<ProcessGroup> process_group = {};  // default: world(), or this process alone
};

// The state of EarlyStopping in one process.
struct EarlyStoppingState {
  double best = std::numeric_limits<double>::quiet_NaN();  // NaN: none yet
  std::int64_t best_step = -1;
  std::int64_t steps = 0;
  std::int64_t bad_steps = 0;  // number of the last steps in a row without improvement

  bool operator==(const EarlyStoppingState&) const = default;
};
// Returns the state after the next metric. Pure.
EarlyStoppingState next_state(EarlyStoppingState state, double metric, const EarlyStoppingOptions& options);

class EarlyStopping {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});

  // Returns should_stop().
  bool step(double metric);
  bool should_stop() const { return state_.bad_steps >= options_.patience; }

  // The best metric, as all ranks agreed on it. NaN if there is none.
  double best() const { return state_.best; }
  // The number of the call of step() with the best metric, from 0. None if there is none.
  std::optional<std::int64_t> best_step() const;
  // Number of the last calls in a row without improvement.
  std::int64_t num_bad_steps() const { return state_.bad_steps; }

  // "best", "best_step", "steps", "bad_steps"
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& tensors);

 private:
  EarlyStoppingOptions options_;
  EarlyStoppingState state_;
};

}  // namespace lockstep
