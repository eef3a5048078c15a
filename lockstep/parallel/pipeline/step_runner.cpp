#include "lockstep/parallel/pipeline/step_runner.h"

#include <algorithm>
#include <exception>

namespace lockstep {
namespace {

using enum PipelineActionKind;
using StepKind = PipelineStep::Kind;

NamedTensors unnamed(const std::vector<at::Tensor>& tensors) {
  NamedTensors values;
  for (const at::Tensor& tensor : tensors)
    values.emplace_back("", tensor.defined() ? tensor.detach() : tensor);
  return values;
}

}  // namespace

RankProgram rank_program(const PipelineShape& shape, int rank, bool with_backwards) {
  PipelineSchedule schedule = pipeline_schedule(shape);
  if (!with_backwards)
    for (auto& actions : schedule.ranks)
      std::erase_if(actions, [](const PipelineAction& action) { return action.kind != FORWARD; });
  RankProgram program;
  program.steps = pipeline_program(schedule).ranks.at(static_cast<std::size_t>(rank));
  schedule.shape.work = PipelineWork();  // as in the program: every action takes some time
  const PipelineTimeline timeline = pipeline_timeline(schedule);
  for (const TimedAction& timed : timeline.ranks[static_cast<std::size_t>(rank)].actions)
    program.times.push_back(timed.start);
  return program;
}

StepRunner::StepRunner(const ProcessGroup& group, const PipelineShape& shape,
                       const std::vector<PipelineStage>& stages)
    : shape_(shape), rank_(group.rank()), messages_(group, shape) {
  for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
    const bool is_last = shape.part_of(rank_, static_cast<int>(chunk)) + 1 == shape.parts();
    parts_.emplace_back(stages[chunk], PartRunner::Place{.is_last = is_last, .is_whole = group.size() == 1});
  }
}

StepOutcome StepRunner::run(const RankProgram& program, StepInput input) {
  input_ = std::move(input);
  outcome_ = StepOutcome();
  outcome_.failure = input_.failure;
  outcome_.losses.assign(input_.form.rows.size(), 0);
  if (input_.keeps_outputs) outcome_.outputs.resize(input_.form.rows.size());
  is_broken_ = outcome_.failure.has_value();
  outgoing_.clear();
  recomputed_.clear();
  weights_.clear();
  for (const PipelineStep& step : program.steps)
    if (step.kind == StepKind::COMPUTE && step.action.kind == RECOMPUTE)
      recomputed_.emplace(step.action.micro_batch, step.action.chunk);
  for (PartRunner& part : parts_) part.begin();
  messages_.begin(input_.form);

  auto time = program.times.begin();
  for (const PipelineStep& step : program.steps) {
    if (step.kind == StepKind::SEND) send(step.message);
    if (step.kind == StepKind::RECEIVE) messages_.receive(step.message);
    if (step.kind != StepKind::COMPUTE) continue;
    now_ = *time++;
    if (step.action.kind == BACKWARD_WEIGHT) {
      weights_[step.action.chunk].push_back({.action = step.action, .start = now_});
      continue;
    }
    backward_weights();
    compute(step.action);
    note_peaks();
  }
  backward_weights();
  messages_.finish();
  outcome_.seconds_waited = messages_.seconds_waited();
  for (PartRunner& part : parts_) part.begin();
  outgoing_.clear();
  input_ = StepInput();
  return std::move(outcome_);
}

ForwardKeeps StepRunner::keeps(const PipelineAction& action) const {
  if (!input_.form.is_training) return ForwardKeeps::NOTHING;
  return recomputed_.contains({action.micro_batch, action.chunk}) ? ForwardKeeps::INPUTS
                                                                  : ForwardKeeps::ACTIVATIONS;
}

void StepRunner::note_peaks() {
  int in_flight = 0, activations = 0;
  for (const PartRunner& part : parts_) {
    in_flight += part.in_flight();
    activations += part.with_activations();
  }
  outcome_.peak_in_flight = std::max(outcome_.peak_in_flight, in_flight);
  outcome_.peak_activations = std::max(outcome_.peak_activations, activations);
}

// Runs `act` unless this rank is broken. Its exception breaks the rank.
template <typename Act> void StepRunner::attempt(const PipelineAction& action, int part, const Act& act) {
  if (is_broken_) return;
  try {
    act();
  } catch (...) {
    outcome_.failure = {.error = std::current_exception(), .action = action, .part = part, .time = now_};
    is_broken_ = true;
  }
}

void StepRunner::compute(const PipelineAction& action) {
  const int part = shape_.part_of(rank_, action.chunk);
  switch (action.kind) {
    case FORWARD: forward(action, part); break;
    case RECOMPUTE: attempt(action, part, [&] { runner(action).recompute(action.micro_batch); }); break;
    case BACKWARD:
    case BACKWARD_INPUT: backward(action, part); break;
    case BACKWARD_WEIGHT:
      attempt(action, part, [&] { runner(action).backward_weight(action.micro_batch); });
      break;
  }
}

// Those that wait. Nobody waits for their results, so they may come a little later than the table says.
void StepRunner::backward_weights() {
  for (const auto& [chunk, waiting] : std::exchange(weights_, {})) {
    std::vector<int> micro_batches;
    for (const TimedAction& one : waiting) micro_batches.push_back(one.action.micro_batch);
    if (!is_broken_) parts_.at(static_cast<std::size_t>(chunk)).join_weights(micro_batches);
    for (const TimedAction& one : waiting) {
      now_ = one.start;
      compute(one.action);
    }
  }
}

void StepRunner::forward(const PipelineAction& action, int part) {
  const int i = action.micro_batch;
  std::optional<NamedTensors> arrived;
  if (part > 0)
    arrived = messages_.take({PipelineMessageKind::ACTIVATION, i, part - 1, part});
  else if (!input_.inputs.empty())
    arrived = unnamed(input_.inputs[static_cast<std::size_t>(i)]);
  if (!arrived) is_broken_ = true;
  attempt(action, part, [&] {
    const bool is_last = part + 1 == shape_.parts();
    const bool learns = !is_last && messages_.agreed(i, part) == nullptr;
    PartLoss loss = is_last ? input_.losses[static_cast<std::size_t>(i)] : PartLoss();
    PartRunner::Result result =
        runner(action).forward(i, std::move(*arrived), std::move(loss), keeps(action), learns);
    if (is_last) {
      outcome_.losses[static_cast<std::size_t>(i)] = result.loss.value_or(0);
      if (input_.keeps_outputs) outcome_.outputs[static_cast<std::size_t>(i)] = std::move(result.values);
    } else {
      messages_.check(i, part, result.values, result.specs, keeps(action) != ForwardKeeps::INPUTS || learns);
      hand_on({PipelineMessageKind::ACTIVATION, i, part, part + 1},
              {.values = std::move(result.values), .specs = std::move(result.specs), .gradients = {}});
    }
  });
}

void StepRunner::backward(const PipelineAction& action, int part) {
  const int i = action.micro_batch;
  std::optional<NamedTensors> arrived = NamedTensors();
  if (part + 1 < shape_.parts()) arrived = messages_.take({PipelineMessageKind::GRADIENT, i, part + 1, part});
  if (!arrived) is_broken_ = true;
  attempt(action, part, [&] {
    const std::vector<at::Tensor> gradients = tensors_of(*arrived);
    std::vector<at::Tensor> of_inputs = action.kind == BACKWARD ? runner(action).backward(i, gradients)
                                                                : runner(action).backward_input(i, gradients);
    if (part > 0)
      hand_on({PipelineMessageKind::GRADIENT, i, part, part - 1},
              {.values = {}, .specs = {}, .gradients = std::move(of_inputs)});
  });
}

// To the next part on this rank at once; to another rank by the program's SEND.
void StepRunner::hand_on(const PipelineMessage& message, Outgoing outgoing) {
  const bool is_activation = message.kind == PipelineMessageKind::ACTIVATION;
  if (shape_.rank_of(message.to_part) != rank_) {
    outgoing_[{message.kind, {message.micro_batch, message.from_part}}] = std::move(outgoing);
  } else if (is_activation) {
    messages_.put(message, outgoing.values, outgoing.specs);
  } else {
    messages_.put(message, outgoing.gradients);
  }
}

void StepRunner::send(const PipelineMessage& message) {
  const auto found = outgoing_.extract({message.kind, {message.micro_batch, message.from_part}});
  if (message.kind == PipelineMessageKind::ACTIVATION) {
    messages_.send(message, found ? std::optional(found.mapped().values) : std::nullopt,
                   found ? found.mapped().specs : ValueSpecs());
  } else {
    messages_.send(message, found ? std::optional(found.mapped().gradients) : std::nullopt);
  }
}

}  // namespace lockstep
