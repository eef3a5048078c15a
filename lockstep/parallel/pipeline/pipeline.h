// Pipeline: trains a model whose stages lie on several ranks. A batch is cut into micro-batches, which go
// through the stages one behind another, so that all ranks compute at once.
//
//   torch::nn::Sequential stage = dist::get_rank() == 0 ? lower_layers() : upper_layers();
//   torch::optim::SGD sgd(stage->parameters(), 0.1);               // each rank steps its own stage
//   dist::Pipeline pipeline({stage}, cross_entropy_loss(), {.micro_batches = 8});
//   for (const Batch& batch : batches) {
//     sgd.zero_grad();
//     double loss = pipeline.step(batch.data, batch.target).loss;  // forward and backward of the whole batch
//     sgd.step();
//   }
//
// Stages      Rank r of the group holds parts r, p + r, 2p + r, ... of the model, one for each element of
//             `stages` (p is the number of ranks). Several are the chunks of interleaved 1F1B. A stage is a
//             module or a function of tensors (pipeline_stage.h). sequential_part() of balance.h cuts a
//             Sequential.
// Schedule    GPIPE, ONE_F_ONE_B, ZB_H1 or ZB_V (schedules/pipeline_schedule.h). Gradients are the same up
//             to rounding; waiting time and memory differ (docs/pipeline.md), and, as forwards come in
//             another order, the random numbers that a dropout draws. ZB_V takes an order for what the parts
//             cost, which `work` says, the same on every rank. balance_by_time() of balance.h measures that,
//             and finds parts that make its step shortest.
// Batch       is cut along dimension 0. Micro-batches differ by at most one row, and a batch with fewer rows
//             than micro_batches makes fewer. A batch may have another number of rows in each step.
// Inputs      are taken on the rank of the first stage, targets on that of the last; other ranks may pass the
//             same or nothing. Undefined tensors are passed on. The inputs themselves get no gradient.
// Loss        of a micro-batch, on the last stage. With MEAN the batch's loss is the mean over rows: each
//             micro-batch counts by its rows. With SUM it is the sum, divided by what `count` counts, if it
//             is given. Gradients are those of that loss, added to .grad. Every rank gets the values.
// Counted     A mean over the tokens that have a target, whatever micro-batch or replica they lie in:
//
//               const auto sum_of = [](const at::Tensor& logits, const at::Tensor& targets) {
//                 const auto options = nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
//                 return nn::functional::cross_entropy(logits, targets, options);
//               };
//               const auto number = [](at::TensorList targets) {
//                 return targets[0].ne(-100).sum().item<double>();
//               };
//               dist::Pipeline pipeline({net}, sum_of,
//                                       {.micro_batches = 8,
//                                        .reduction = dist::LossReduction::SUM,
//                                        .count = number,
//                                        .replicas = data_group});
//
//             The counts of all micro-batches of all `replicas` are added up. `replicas` are the pipelines
//             whose gradients are averaged with these: a step is divided by the mean count of a replica, so
//             the average is the gradient of the mean over all tokens.
// Recompute   ALWAYS and EXCEPT_LAST run a forward again before its backward, with the same random numbers
//             (the default CPU generator), and keep the inputs of a stage alone until then.
// Weights     of linear layers get their gradients in place, several micro-batches at once where these wait
//             (docs/pipeline.md). A weight with a hook sees each micro-batch's.
// Shapes      of what travels between two stages are agreed at the first micro-batch of each form (its
//             rows, and the other sizes and dtypes of the inputs), and refused by name if they change.
// Calls       of step(), eval() and tie() are collective over the group: every rank calls the same. With
//             `replicas`, step(), and eval() with targets, are collective over these, too, on the ranks of
//             the last stage.
// Blocks      step() until all ranks have ended the step; so no rank steps its optimiser if another failed.
// Messages    use send and receive of the group, with tags 20560 to 20562. Over shared memory a tensor of
//             64 KiB or more is copied once, into memory that its receiver uses as long as it likes. No rank
//             waits for a receiver there.
// Fails       An exception of a stage or of the loss, in a forward or backward: its rank rethrows it, and
//             all others throw StageFailed (stage_failed.h). The same holds for a batch that cannot be cut
//             (InvalidArgument). The group and the pipeline stay usable. A rank that dies is a PeerLost on
//             all others, and the group is closed.
// Throws      (constructor) InvalidArgument: no stages, micro_batches below 1, several stages with GPIPE or
//             ZB_H1, other than two with ZB_V; count without SUM, replicas without count; work of
//             another number of parts. Mismatch: ranks disagree about options or numbers of stages.
// Source      Huang et al. (GPipe), 2019; Narayanan et al. (Megatron-LM), 2021; torchgpipe;
//             torch.distributed.pipelining. docs/pipeline.md has the names of the latter beside ours.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/parallel/pipeline/stage_failed.h"
#include "lockstep/schedules/pipeline_schedule.h"

namespace lockstep {

enum class LossReduction : std::uint8_t { MEAN, SUM };

struct PipelineOptions {
  PipelineScheduleKind schedule = PipelineScheduleKind::ONE_F_ONE_B;
  int micro_batches = 1;
  RecomputeMode recompute = RecomputeMode::NEVER;
  LossReduction reduction = LossReduction::MEAN;
  bool return_outputs = false;                               // of step(); eval() always returns them
  std::function<double(at::TensorList targets)> count = {};  // of a micro-batch; called on the last stage
  std::optional<ProcessGroup> replicas = {};                 // the same rank of all pipelines
  PipelineWork work = {};                                    // what the model costs, for ZB_V
};

struct PipelineResult {
  double loss = 0;                  // of the batch, on every rank; 0 from eval() without targets
  std::vector<double> losses;       // of each micro-batch, on every rank
  std::vector<at::Tensor> outputs;  // of the last stage, on its rank: micro-batches joined along dimension 0
};

// Of the last step() on this rank.
struct PipelineStats {
  int peak_in_flight = 0;     // micro-batches between forward and backward, of one chunk each
  int peak_activations = 0;   // those whose activations were kept
  double seconds = 0;         // of the step
  double seconds_waited = 0;  // of these, for values of other ranks
};

class StepRunner;
class TiedParameters;
struct RankProgram;
struct StepInput;

class Pipeline {
 public:
  Pipeline(std::vector<PipelineStage> stages, PipelineLoss loss, const PipelineOptions& options = {},
           const ProcessGroup& group = world());
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Forward and backward of a batch. Gradients, times `grad_scale`, are added to .grad of the stages'
  // parameters. With a GradScaler: step(inputs, targets, scaler.scale(1.0)). The loss is not scaled.
  PipelineResult step(at::TensorList inputs = {}, at::TensorList targets = {}, double grad_scale = 1);
  // Forward alone, without gradients. Without targets no loss is computed.
  PipelineResult eval(at::TensorList inputs = {}, at::TensorList targets = {});

  // A parameter that stages of several ranks hold. They get the values of the lowest of these ranks now,
  // where they differ, and the sum of their gradients in each step. Ranks without it pass nothing:
  //
  //   pipeline.tie("embedding", pipeline.is_first() || pipeline.is_last() ? embedding : at::Tensor());
  void tie(const std::string& name, const at::Tensor& parameter = {});

  bool is_first() const;  // whether this rank has the first stage and takes inputs
  bool is_last() const;   // whether it has the last one and takes targets
  const PipelineStats& stats() const { return stats_; }

 private:
  PipelineResult run(at::TensorList inputs, at::TensorList targets, bool is_training, double grad_scale);
  StepInput agree_on_form(at::TensorList inputs, bool is_training);
  void cut_targets(StepInput& input, at::TensorList targets) const;
  std::vector<double> weights_of(const StepInput& input) const;
  const RankProgram& program(const StepInput& input);
  void settle_layers(bool is_fine);

  const std::vector<PipelineStage> stages_;
  const PipelineLoss loss_;
  const PipelineOptions options_;
  const ProcessGroup group_;
  const PipelineShape shape_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<TiedParameters> tied_;
  std::map<std::pair<std::size_t, bool>, RankProgram> programs_;  // by micro-batches, and whether it trains
  PipelineStats stats_;
};

}  // namespace lockstep
