// GradientAccumulation: several micro-batches make one step of the optimiser, as if they had been one batch.
// DDP communicates only in the last of them.
//
//   dist::GradientAccumulation accumulation(ddp, {.steps = 4, .micro_batches = loader.size()});
//   for (auto& batch : loader) {
//     auto micro = accumulation.next();  // no_sync() for all but the last of four
//     auto loss = cross_entropy(ddp->forward(batch.data), batch.target);       // a mean over the micro-batch
//     micro.backward(loss);                                                    // of loss / 4
//     if (micro.is_last()) {
//       dist::clip_grad_norm_(ddp.parameters(), 1.0);
//       optimizer.step();
//       optimizer.zero_grad();
//     }
//   }
//
// Last group  With micro_batches, the number of next() in an epoch, the last group of each epoch may be
//             incomplete. For example, 10 in steps of 4 make groups of 4, 4 and 2, and a loss of the last
//             group is divided by 2. Without it every group has `steps` micro-batches, and a group may reach
//             into the next epoch; pending() says how many wait for their step.
// Unequal     sizes: a mean of means is the mean over all samples only if all micro-batches have the same
//             size. Otherwise (padded tokens, a smaller last batch) pass the sum of the losses and their
//             number:
//
//               auto sum = cross_entropy(
//                   logits, target,
//                   CrossEntropyFuncOptions().reduction(torch::kSum).ignore_index(-100));
//               micro.backward(sum, (target != -100).sum().item<double>());
//
//             Gradients are then divided by that number over all micro-batches of the group on all ranks. So
//             every token counts the same. This costs one all_reduce of a number and one pass over the
//             gradients per step.
// Without DDP GradientAccumulation accumulation(net->parameters(), {.steps = 4});
// Precision   micro.backward(scaler.scale(loss)) works as backward of a loss does (mixed precision).
// Ranks       All call it alike: every rank has the same number of micro-batches, and uses the same form of
//             backward().
// BatchNorm   sees micro-batches, not the whole batch. So its statistics, and the gradients, are not those of
//             one batch.
// Resuming    state_dict() has the number of micro-batches begun, so that a run that resumes within an epoch
//             divides its last group as before. Take it between two groups, because it does not contain
//             gradients that wait for their step.
// Fails       InvalidArgument: no steps; both forms of backward() in one group; a negative or infinite number
//             of losses; a sum and its number with virtual ranks (job/virtual_ranks.h); a state_dict() within
//             a group, or an invalid one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

struct GradientAccumulationOptions {
  std::int64_t steps = 1;                          // micro-batches per step of the optimiser
  std::optional<std::int64_t> micro_batches = {};  // per epoch
};

// Size of the group of this micro-batch, and its place in the group. Micro-batches are counted from 0 over
// all epochs.
struct AccumulationPlace {
  std::int64_t index = 0;
  std::int64_t size = 1;
};
AccumulationPlace accumulation_place(const GradientAccumulationOptions& options, std::int64_t number);

class GradientAccumulation {
 public:
  class MicroBatch {
   public:
    bool is_last() const {
      return place_.index + 1 == place_.size;
    }  // after its backward() the optimiser steps
    std::int64_t index() const { return place_.index; }
    std::int64_t group_size() const { return place_.size; }

    // `mean_loss` is the mean over the micro-batch.
    void backward(const at::Tensor& mean_loss);
    // `summed_loss` is the sum of `count` losses.
    void backward(const at::Tensor& summed_loss, double count);

   private:
    friend class GradientAccumulation;
    MicroBatch(GradientAccumulation& owner, AccumulationPlace place, std::shared_ptr<void> no_sync)
        : owner_(owner), place_(place), no_sync_(std::move(no_sync)) {}
    GradientAccumulation& owner_;
    AccumulationPlace place_;
    std::shared_ptr<void> no_sync_;
  };

  // `ddp` is a DistributedDataParallel, or another class with no_sync(), parameters() and process_group(). It
  // outlives this object.
  template <typename Ddp>
  requires requires(Ddp& ddp) {
    ddp.no_sync();
    ddp.process_group();
  }
  GradientAccumulation(Ddp& ddp, const GradientAccumulationOptions& options)
      : GradientAccumulation(ddp.parameters(), options) {
    group_ = ddp.process_group();
    no_sync_ = [&ddp] { return std::make_shared<decltype(ddp.no_sync())>(ddp.no_sync()); };
  }
  GradientAccumulation(std::vector<at::Tensor> parameters, const GradientAccumulationOptions& options);
  GradientAccumulation(const GradientAccumulation&) = delete;
  GradientAccumulation& operator=(const GradientAccumulation&) = delete;

  // Call it before the forward of each micro-batch. Keep the result until its backward is done, and destroy
  // it before the next.
  [[nodiscard]] MicroBatch next();

  // Number of micro-batches begun since the last complete group.
  std::int64_t pending() const;

  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& tensors);

 private:
  enum class Form { UNKNOWN, MEANS, SUMS };
  void begin_backward(Form form, std::int64_t index);
  void normalise();

  std::vector<at::Tensor> parameters_;
  GradientAccumulationOptions options_;
  std::optional<ProcessGroup> group_;
  std::function<std::shared_ptr<void>()> no_sync_;
  std::int64_t begun_ = 0;
  Form form_ = Form::UNKNOWN;
  double count_ = 0;  // number of losses in this group on this rank
};

}  // namespace lockstep
