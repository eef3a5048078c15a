// ReduceLROnPlateau: lowers the learning rates when a metric has stopped improving, as
// torch.optim.lr_scheduler's.
//
//   dist::optim::ReduceLROnPlateau scheduler(optimizer, {.factor = 0.5, .patience = 3});
//   for (int epoch = 0; epoch < 90; ++epoch) {
//     const double loss = validate();  // averaged over all ranks, so that all reduce together
//     scheduler.step(loss);
//   }
//
// A metric improves when it is better than the best so far by more than the threshold. With REL it must be
// below best * (1 - threshold), with ABS below best - threshold; with MAX above, with the sign reversed.
// After more than `patience` steps in a row without improvement, every group's rate becomes max(lr * factor,
// min_lr), unless that changes it by eps or less. The next `cooldown` steps count nothing. NaN never
// improves. State and lifetime: lr_scheduler.h.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <vector>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep::optim {

struct ReduceLROnPlateauOptions {
  enum class Mode { MIN, MAX };
  enum class ThresholdMode { REL, ABS };
  Mode mode = Mode::MIN;
  double factor = 0.1;
  std::int64_t patience = 10;
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::REL;
  std::int64_t cooldown = 0;
  std::vector<double> min_lr = {0};  // one for all groups, or one for each
  double eps = 1e-8;
};

class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(torch::optim::Optimizer& optimizer, ReduceLROnPlateauOptions options = {});

  void step(double metric);

  double best() const { return best_; }
  std::int64_t num_bad_epochs() const { return num_bad_epochs_; }
  bool in_cooldown() const { return cooldown_counter_ > 0; }
  std::vector<double> get_last_lr() const;

  // "best", "num_bad_epochs", "cooldown_counter", "last_epoch", "last_lr"
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& tensors);

 private:
  bool is_better(double metric) const;
  void reduce();

  torch::optim::Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  double best_;
  std::int64_t num_bad_epochs_ = 0;
  std::int64_t cooldown_counter_ = 0;
  std::int64_t last_epoch_ = 0;
};

}  // namespace lockstep::optim
