// BestCheckpoints: remembers the best checkpoints of a run by a metric, so that they stay on the disk.
//
//   dist::BestCheckpoints best(3, dist::MetricMode::MAX);           // the three of the largest accuracy
//   dist::CheckpointState state;
//   state.add("model", *net).add("optimizer", optimizer).add("best", best);
//   for (std::int64_t step = 1000; step <= 90'000; step += 1000) {
//     train_steps(1000);
//     dist::save_checkpoint("runs/7", state,
//                           {.step = step, .keep_last = 1, .keep_steps = best.add(step, accuracy())});
//   }
//   dist::load_checkpoint("runs/7", state, {.step = best.best()->step});        // the best one
//
// Keeps       the `count` best steps by their metric. Of equal metrics the earlier step stays. NaN is never
//             kept, so there may be fewer. A step that is added again counts with its new metric.
// Removes     nothing itself. SaveCheckpointOptions::keep_last removes the other checkpoints, except
//             keep_steps. Without keep_last all stay.
// Before      Call add() before saving, so that the saved state includes the step itself.
// Collective  add(): every rank of the group gives the same step and its metric. One all_gather of some
//             bytes, which blocks. The metric of all ranks is that of EarlyStopping (early_stopping.h): the
//             number itself if all give the same one, else the mean over the ranks. A process without a job
//             is alone.
// State       for checkpoints: CheckpointState::add("best", best). If it is loaded with a smaller count, the
//             best steps are taken.
// Fails       InvalidArgument: a count below 1, a negative step, a process outside of the group, an invalid
//             state dict. Mismatch, on all ranks, that names it: a step or state that differs from rank to
//             rank.
// Threads     one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/train/metric_mode.h"

namespace lockstep {

struct ScoredStep {
  std::int64_t step = 0;
  double metric = 0;

  bool operator==(const ScoredStep&) const = default;
};
// Adds `candidate` to `best` at its place, and returns at most `count` of them. Pure.
std::vector<ScoredStep> with_candidate(std::vector<ScoredStep> best, const ScoredStep& candidate, int count,
                                       MetricMode mode);

class BestCheckpoints {
 public:
  // `group` defaults to world(), or to this process alone.
  explicit BestCheckpoints(int count, MetricMode mode = MetricMode::MIN,
                           const std::optional<ProcessGroup>& group = {});

  // Returns the new steps().
  std::vector<std::int64_t> add(std::int64_t step, double metric);

  // The best first.
  std::vector<std::int64_t> steps() const;
  const std::vector<ScoredStep>& scored_steps() const { return best_; }
  // None if there is no step yet.
  std::optional<ScoredStep> best() const;

  // "steps" and "metrics", the best first
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& tensors);

 private:
  int count_;
  MetricMode mode_;
  std::optional<ProcessGroup> group_;
  std::vector<ScoredStep> best_;
};

}  // namespace lockstep
