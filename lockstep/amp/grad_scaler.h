// GradScaler: scales the loss so that float16 gradients do not underflow, and skips a step whose gradients
// overflowed. It is torch.amp.GradScaler of Python, for any torch::optim::Optimizer. All ranks of a group
// agree.
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
//     scaler.unscale_(optimizer);  // optional: clipping then sees the true gradients
//     torch::nn::utils::clip_grad_norm_(ddp.parameters(), 1.0);
//     scaler.step(optimizer);  // skipped if a gradient is not finite
//     scaler.update();  // once per iteration, after all optimisers' steps
//   }
//
// Accumulate   Scale each micro-batch's loss. Unscale, step and update only where the optimiser steps,
//              because the scale must not change in between.
// Several      optimisers may share one scaler. Each steps or is skipped by itself. One overflow among them
//              lowers the scale.
// Collective   unscale_() of each optimiser, or step() if it was not called: one all_reduce of 8 bytes. By it
//              all ranks of the group skip together, even if the gradients of one rank alone overflowed.
//              Every rank calls them in the same order. A group of one rank, or none, sends nothing.
// Overflow     last_overflow() says which parameter's gradient was not finite and on which rank. It is the
//              first parameter in the optimiser's order, and the lowest rank that has it. (After DDP has
//              averaged, every rank has it.) In the first steps of a run, skips are normal until the scale
//              fits. SKIPS_TO_WARN skips in a row are logged as a warning.
// Differs      from Python: step() returns whether the step was taken. The scale lives on the host, so
//              get_scale() costs nothing, and unscale_() waits for the device.
// Same scale   on all ranks: the all_reduce carries it. If one rank alone loads a state or calls
//              update(new_scale), that is a Mismatch with both scales.
// Fails        InvalidArgument from the constructor: a process outside process_group. InvalidArgument, with
//              the words of torch: calls in a wrong order (the table below), float16 gradients, an optimiser
//              whose parameters have no gradient.
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
  bool enabled = true;  // false: scale() and unscale_() do nothing, and step() always steps
  std::optional<ProcessGroup> process_group = {};  // default: world(), or this process alone
  NamedTensors parameters = {};  // names for last_overflow(): net->named_parameters().pairs()
};

struct GradOverflow {
  std::string parameter;            // "fc1.weight"; without names "parameter 3 of group 0 ([10, 84], Float)"
  int rank = 0;                     // of the scaler's group
  std::int64_t skips_in_a_row = 0;  // number of skipped iterations, including this one
};

// Multiplies the gradients of an optimiser by `factor`, in place. Returns the first parameter whose gradient
// was not finite, by its place among all of the optimiser's; nothing if all are finite. On this rank alone.
// `none_found`, if given, is set when no parameter has a gradient. Throws InvalidArgument for float16
// gradients unless `allow_half`.
std::optional<std::int64_t> unscale_gradients(torch::optim::Optimizer& optimizer, double factor,
                                              bool allow_half = false, bool* none_found = nullptr);

// Returns "fc1.weight", or the place, shape and dtype if `names` has no name for it.
std::string parameter_name(torch::optim::Optimizer& optimizer, std::int64_t index, const NamedTensors& names);

// Returns the first parameter that any rank of `group` found, and the lowest rank that found it; nothing if
// no rank did. Collective. Throws Mismatch on all ranks if `scale` is not the same on all.
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

  // Returns the outputs times the scale, as part of the graph. A float16 loss becomes float32.
  at::Tensor scale(const at::Tensor& outputs);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);
  // The same for who scales gradients by a number: pipeline.step(inputs, targets, scaler.scale(1.0)). Ranks
  // without a loss of their own call it, too.
  double scale(double factor);

  // Divides the gradients of the optimiser's parameters by the scale, in place (a sparse float16 one may be
  // replaced).
  void unscale_(torch::optim::Optimizer& optimizer);
  // Calls optimizer.step(), unless a gradient on some rank is not finite. Closures are not supported, as in
  // torch.
  bool step(torch::optim::Optimizer& optimizer);
  // Lowers or raises the scale. The second form sets it.
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

  // The overflow of the last skipped iteration, if there was one.
  const std::optional<GradOverflow>& last_overflow() const { return last_overflow_; }

  // Scalars: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker, and _hysteresis_tracker,
  // which may be missing. Empty if the scaler is disabled. Loading an empty or incomplete state is an
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
