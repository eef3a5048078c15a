// GradScaler: keeps float16 gradients away from zero by scaling the loss, and skips a step whose gradients
// overflowed. What torch.amp.GradScaler is to Python, for any torch::optim::Optimizer, with all ranks of a
// group agreeing.
//
//   dist::GradScaler scaler;
//   for (auto& batch : loader) {
//     optimizer.zero_grad();
//     at::Tensor loss;
//     {
//       const auto mixed = dist::autocast(at::kCPU, at::kHalf);
//       loss = cross_entropy(ddp->forward(batch.data), batch.target);
//     }
//     scaler.scale(loss).backward();
//     scaler.unscale_(optimizer);  // optional: to clip what the gradients really are
//     torch::nn::utils::clip_grad_norm_(ddp.parameters(), 1.0);
//     scaler.step(optimizer);  // skipped if a gradient is not finite
//     scaler.update();  // once per iteration, after all optimisers' steps
//   }
//
// Accumulation scale each micro-batch's loss, and unscale, step and update only where the optimiser steps:
// the scale must not
//              change in between.
// Several      optimisers share one scaler and step or are skipped each by itself; one overflow among them
//              lowers the scale.
// Collective   unscale_() of each optimiser, or step() where it was not called: one all_reduce of 8 bytes, by
//              which all ranks of the group skip together even if the gradients of one rank alone overflowed.
//              Every rank calls them in the same order. A group of one rank, or none, sends nothing.
// Overflow     last_overflow() says which parameter's gradient was not finite and on which rank: of the
//              parameters in the optimiser's order the first, of the ranks that have it the lowest. (After
//              DDP has averaged, every rank has it.) The first skips of a run are the scale finding its
//              place; SKIPS_TO_WARN in a row are logged as a warning.
// Differs      from Python: step() returns whether the step was taken; the scale lives on the host, so
//              get_scale() costs nothing and unscale_() waits for the device.
// Same scale   on all ranks: the all_reduce carries it. State loaded, or update(new_scale) called, on one
//              rank alone is a Mismatch there that has both scales.
// Fails        InvalidArgument: a process outside process_group, from the constructor. InvalidArgument, with
//              the words of torch: calls in an order that cannot be (the table below), float16 gradients, an
//              optimiser whose parameters have no gradient.
//
//                        scale()    unscale_()     step()            update()
//   after nothing        yes        error          error             error
//   after scale()        yes        yes            yes, unscales     error
//   after unscale_()     yes        error          yes               yes
//   after step()         yes        error          error             yes, starts anew
//
// State        state_dict() has Python's five entries and the same meaning. Save after update().
// Source       torch/amp/grad_scaler.py of PyTorch 2.13. Other conventions: loss_scale.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/amp/loss_scale.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

struct GradScalerOptions {
  bool enabled = true;  // false: scale() and unscale_() do nothing, step() always steps
  std::optional<ProcessGroup> process_group = {};  // default: world(), or this process alone
  NamedTensors parameters = {};  // names for last_overflow(): net->named_parameters().pairs()
};

struct GradOverflow {
  std::string parameter;            // "fc1.weight"; without names "parameter 3 of group 0 ([10, 84], Float)"
  int rank = 0;                     // of the scaler's group
  std::int64_t skips_in_a_row = 0;  // iterations, this one included
};

// The gradients of an optimiser times `factor`, in place. Returns the parameter, by its place among all of
// the optimiser's, whose gradient is the first that was not finite; nothing if all are. Of this rank alone.
// `none_found`, if given, is set when no parameter has a gradient. Throws InvalidArgument for float16
// gradients unless `allow_half`.
std::optional<std::int64_t> unscale_gradients(torch::optim::Optimizer& optimizer, double factor,
                                              bool allow_half = false, bool* none_found = nullptr);

// "fc1.weight", or its place, shape and dtype where `names` has no name for it.
std::string parameter_name(torch::optim::Optimizer& optimizer, std::int64_t index, const NamedTensors& names);

// Collective: the first of what the ranks of `group` found, and the lowest rank that found it; nothing if no
// rank did. Throws Mismatch on all ranks if `scale` is not the same on all.
struct RankedParameter {
  std::int64_t index;
  int rank;
};
std::optional<RankedParameter> first_of_all_ranks(const std::optional<std::int64_t>& found,
                                                  const std::optional<ProcessGroup>& group, double scale);

class GradScaler {
 public:
  static constexpr std::int64_t SKIPS_TO_WARN = 20;

  explicit GradScaler(const LossScaleOptions& scale = {}, GradScalerOptions options = {});
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  // The outputs times the scale, as part of the graph. A float16 loss becomes float32.
  at::Tensor scale(const at::Tensor& outputs);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);

  // Divides the gradients of the optimiser's parameters by the scale, in place (a sparse float16 one may be
  // replaced).
  void unscale_(torch::optim::Optimizer& optimizer);
  // optimizer.step(), unless a gradient of a rank is not finite. Closures are not supported, as in torch.
  bool step(torch::optim::Optimizer& optimizer);
  // Lowers or raises the scale; or sets it.
  void update();
  void update(double new_scale);

  bool is_enabled() const { return options_.enabled; }
  double get_scale() const { return options_.enabled ? scale_.value() : 1.0; }
  double get_growth_factor() const { return scale_.options().growth_factor; }
  double get_backoff_factor() const { return scale_.options().backoff_factor; }
  std::int64_t get_growth_interval() const { return scale_.options().growth_interval; }
  void set_growth_factor(double factor);
  void set_backoff_factor(double factor);
  void set_growth_interval(std::int64_t interval);

  // Of the last iteration that was skipped, if any was.
  const std::optional<GradOverflow>& last_overflow() const { return last_overflow_; }

  // Scalars: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker, and _hysteresis_tracker,
  // which may be missing. Empty when disabled. Loading one that is empty or lacks an entry is an
  // InvalidArgument, before anything changes.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  enum class Stage { READY, UNSCALED, STEPPED };
  struct OfOptimizer {
    Stage stage = Stage::READY;
    bool checked = false;  // it had gradients
    bool overflow = false;
  };

  std::optional<ProcessGroup> group() const;
  void require_scaled(const char* call) const;
  void note_overflow(std::string parameter, int rank);
  void finish_iteration();

  const GradScalerOptions options_;
  LossScale scale_;
  bool has_scaled_ = false;
  std::map<const torch::optim::Optimizer*, OfOptimizer> optimizers_;  // of this iteration
  std::optional<GradOverflow> last_overflow_;
  std::int64_t skips_in_a_row_ = 0;
};

}  // namespace lockstep
