#include "lockstep/parallel/pipeline/pipeline.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <chrono>
#include <exception>
#include <numeric>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/optim/model_part.h"
#include "lockstep/parallel/pipeline/deferred_batch_norm.h"
#include "lockstep/parallel/pipeline/step_form.h"
#include "lockstep/parallel/pipeline/step_runner.h"
#include "lockstep/parallel/pipeline/tied_parameters.h"

namespace lockstep {
namespace {

// Compares what every rank was told; name_of(i) is in an error.
template <typename Name>
void compare_numbers(const ProcessGroup& group, const std::vector<double>& mine, const Name& name_of) {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span(mine), std::span(all)).wait();
  for (std::size_t i = mine.size(); i < all.size(); ++i) {
    if (all[i] == all[i % mine.size()]) continue;
    throw Mismatch(str("Pipeline on group \"", group.name(), "\", rank ", group.rank(), " of ", group.size(),
                       ": ", name_of(i % mine.size()), " is ", all[i % mine.size()], " on rank 0 and ",
                       all[i], " on rank ", i / mine.size(),
                       "; every rank makes the pipeline with the same options and as many stages"));
  }
}

void compare_options(const ProcessGroup& group, const PipelineOptions& options, std::size_t stages) {
  const Acting acting(Purpose::PIPELINE);
  const PipelineWork& work = options.work;
  const std::vector<std::pair<const char*, double>> named = {
      {"stages", static_cast<double>(stages)},
      {"schedule", static_cast<double>(options.schedule)},
      {"micro_batches", options.micro_batches},
      {"recompute", static_cast<double>(options.recompute)},
      {"reduction", static_cast<double>(options.reduction)},
      {"work.forward", work.forward},
      {"work.backward_input", work.backward_input},
      {"work.backward_weight", work.backward_weight},
      {"the number of work.part_sizes", static_cast<double>(work.part_sizes.size())}};
  std::vector<double> numbers;
  for (const auto& [name, number] : named) numbers.push_back(number);
  compare_numbers(group, numbers, [&](std::size_t i) { return named[i].first; });
  if (!work.part_sizes.empty())
    compare_numbers(group, work.part_sizes, [](std::size_t i) { return str("work.part_sizes[", i, ']'); });
}

PipelineShape shape_of(const PipelineOptions& options, std::size_t stages, const ProcessGroup& group) {
  group.require_member("Pipeline");
  if (options.count && options.reduction != LossReduction::SUM)
    throw InvalidArgument(
        "Pipeline: with `count` the loss of a micro-batch is a sum, so reduction must be SUM");
  if (options.replicas && !options.count)
    throw InvalidArgument(
        "Pipeline: `replicas` without `count`; a mean over rows counts each replica alike and needs neither");
  if (stages == 0)
    throw InvalidArgument("Pipeline: this rank has no stage; it needs one, or several for 1f1b");
  compare_options(group, options, stages);
  const PipelineShape shape = {.kind = options.schedule,
                               .stages = group.size(),
                               .micro_batches = options.micro_batches,
                               .virtual_stages = static_cast<int>(stages),
                               .recompute = options.recompute,
                               .work = options.work};
  static_cast<void>(pipeline_schedule(shape));  // refuses what cannot be
  return shape;
}

// So that an optimiser does not take the norm of one stage for that of the model.
void mark_parameters(const std::vector<PipelineStage>& stages) {
  for (const PipelineStage& stage : stages) {
    if (!stage.module()) continue;
    for (const at::Tensor& parameter : stage.module()->parameters())
      optim::mark_as_part(parameter, optim::ModelPart::STAGE);
  }
}

double step_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The outputs of all micro-batches, each joined along dimension 0.
std::vector<at::Tensor> joined(const std::vector<NamedTensors>& outputs) {
  std::vector<at::Tensor> all;
  if (outputs.empty() || outputs.front().empty()) return all;
  for (std::size_t k = 0; k < outputs.front().size(); ++k) {
    std::vector<at::Tensor> pieces;
    for (const NamedTensors& one : outputs) pieces.push_back(one[k].second);
    const bool can_join = pieces.front().defined() && pieces.front().dim() > 0;
    all.push_back(can_join ? at::cat(pieces) : pieces.front());
  }
  return all;
}

}  // namespace

Pipeline::Pipeline(std::vector<PipelineStage> stages, PipelineLoss loss, const PipelineOptions& options,
                   const ProcessGroup& group)
    : stages_(std::move(stages)),
      loss_(std::move(loss)),
      options_(options),
      group_(group),
      shape_(shape_of(options, stages_.size(), group)),
      runner_(std::make_unique<StepRunner>(group, shape_, stages_)),
      tied_(std::make_unique<TiedParameters>()) {
  if (group.size() > 1) mark_parameters(stages_);
}

Pipeline::~Pipeline() = default;

bool Pipeline::is_first() const { return shape_.rank_of(0) == group_.rank(); }
bool Pipeline::is_last() const { return shape_.rank_of(shape_.parts() - 1) == group_.rank(); }

void Pipeline::tie(const std::string& name, const at::Tensor& parameter) {
  tied_->tie(group_, name, parameter);
}

PipelineResult Pipeline::step(at::TensorList inputs, at::TensorList targets, double grad_scale) {
  tied_->begin();
  try {
    PipelineResult result = run(inputs, targets, /*is_training=*/true, grad_scale);
    tied_->finish();
    return result;
  } catch (...) {
    tied_->cancel();
    throw;
  }
}

PipelineResult Pipeline::eval(at::TensorList inputs, at::TensorList targets) {
  const DeferredBatchNormPause pause;
  return run(inputs, targets, /*is_training=*/false, /*grad_scale=*/1);
}

PipelineResult Pipeline::run(at::TensorList inputs, at::TensorList targets, bool is_training,
                             double grad_scale) {
  const double start = step_clock();
  const int last_rank = shape_.rank_of(shape_.parts() - 1);
  StepInput input = agree_on_form(inputs, is_training);
  if (is_last()) cut_targets(input, targets);
  input.keeps_outputs = is_last() && (options_.return_outputs || !is_training);
  const std::vector<double> weights = weights_of(input);
  for (std::size_t i = 0; i < input.losses.size(); ++i) input.losses[i].weight = weights[i] * grad_scale;

  const RankProgram& table = program(input);
  StepOutcome outcome = runner_->run(table, std::move(input));
  outcome.losses.push_back(  // of the batch: only the last stage knows the weights
      std::inner_product(weights.begin(), weights.end(), outcome.losses.begin(), 0.0));
  PipelineResult result;
  try {
    result.losses = report_step(group_, outcome.failure, outcome.losses, last_rank);
    result.loss = result.losses.back();
    result.losses.pop_back();
  } catch (...) {
    settle_layers(/*is_fine=*/false);
    throw;
  }
  if (is_training) settle_layers(/*is_fine=*/true);
  result.outputs = joined(outcome.outputs);
  stats_ = {.peak_in_flight = outcome.peak_in_flight,
            .peak_activations = outcome.peak_activations,
            .seconds = step_clock() - start,
            .seconds_waited = outcome.seconds_waited};
  return result;
}

// The rank of the first stage tells all others the form of the batch, which they cannot know.
StepInput Pipeline::agree_on_form(at::TensorList inputs, bool is_training) {
  StepInput input;
  const int first_rank = shape_.rank_of(0);
  StepHead head;
  if (is_first()) {
    try {
      head = head_of(inputs, is_training, options_.micro_batches);
      input.inputs = cut_rows(inputs, rows_of(head, options_.micro_batches));
    } catch (...) {
      head = {.is_training = is_training};  // without rows: nobody computes
      input.failure = {.error = std::current_exception(), .action = {}};
    }
  }
  exchange_head(group_, first_rank, head);
  if (head.is_training != is_training) {
    const char* const names[] = {"eval()", "step()"};
    const auto error = std::make_exception_ptr(Mismatch(
        str("Pipeline on group \"", group_.name(), "\", rank ", group_.rank(), " of ", group_.size(),
            ": called ", names[static_cast<std::size_t>(is_training)], " while the rank of the first stage, ",
            first_rank, ", called ", names[static_cast<std::size_t>(head.is_training)])));
    input.failure = {.error = error, .action = {}};
  }
  input.form = {.rows = rows_of(head, options_.micro_batches),
                .signature = head.signature,
                .is_training = head.is_training};
  return input;
}

void Pipeline::cut_targets(StepInput& input, at::TensorList targets) const {
  const bool has_loss = input.form.is_training || !targets.empty();
  if (has_loss && options_.count) input.count = 0;
  input.losses.resize(input.form.rows.size());
  if (input.losses.empty()) return;
  try {
    const auto pieces = cut_rows(targets, input.form.rows);
    for (std::size_t i = 0; i < input.losses.size(); ++i) {
      input.losses[i] = {.function = has_loss ? &loss_ : nullptr, .targets = pieces[i]};
      if (input.count && !input.failure) *input.count += options_.count(pieces[i]);
    }
  } catch (...) {
    if (input.count) input.count = 0;
    if (!input.failure)
      input.failure = {.error = std::current_exception(), .action = {}, .part = shape_.parts() - 1};
  }
}

// By micro-batch, of its loss in that of the batch. What divides a sum is the mean count of a replica; one
// that failed counts nothing, and takes part all the same.
std::vector<double> Pipeline::weights_of(const StepInput& input) const {
  const std::vector<std::int64_t>& rows = input.form.rows;
  std::vector<double> weights(rows.size(), 1);
  if (options_.reduction == LossReduction::MEAN) {
    const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
    for (std::size_t i = 0; i < rows.size(); ++i) weights[i] = static_cast<double>(rows[i]) / all;
  } else if (input.count) {
    const Acting acting(Purpose::PIPELINE);
    double count = *input.count;
    if (options_.replicas) comm::all_reduce(*options_.replicas, std::span(&count, 1), ReduceOp::AVG).wait();
    weights.assign(rows.size(), count > 0 ? 1 / count : 0);
  }
  return weights;
}

const RankProgram& Pipeline::program(const StepInput& input) {
  const std::pair key = {input.form.rows.size(), input.form.is_training};
  const auto known = programs_.find(key);
  if (known != programs_.end()) return known->second;
  PipelineShape shape = shape_;
  shape.micro_batches = static_cast<int>(key.first);
  RankProgram made =
      key.first == 0 ? RankProgram() : rank_program(shape, group_.rank(), input.form.is_training);
  return programs_[key] = std::move(made);
}

void Pipeline::settle_layers(bool is_fine) {
  for (const PipelineStage& stage : stages_) {
    if (is_fine)
      commit_deferred_batch_norms(stage.module().get());
    else
      discard_deferred_batch_norms(stage.module().get());
  }
}

}  // namespace lockstep
