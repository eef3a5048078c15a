#include "lockstep/schedules/pipeline_messages.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "lockstep/base/str.h"
#include "lockstep/schedules/pipeline_timeline.h"

namespace lockstep {
namespace {

using enum PipelineActionKind;
using StepKind = PipelineStep::Kind;

struct SentMessage {
  double time = 0;
  PipelineMessage message;
};

// What an action sends to another part of the model, if there is such a part.
std::optional<PipelineMessage> message_after(const PipelineShape& shape, int rank,
                                             const PipelineAction& action) {
  const int part = shape.part_of(rank, action.chunk);
  const bool is_backward = action.kind == BACKWARD || action.kind == BACKWARD_INPUT;
  const auto is_elsewhere = [&](int other) { return shape.rank_of(other) != rank; };
  if (action.kind == FORWARD && part + 1 < shape.parts() && is_elsewhere(part + 1))
    return PipelineMessage{PipelineMessageKind::ACTIVATION, action.micro_batch, part, part + 1};
  if (is_backward && part > 0 && is_elsewhere(part - 1))
    return PipelineMessage{PipelineMessageKind::GRADIENT, action.micro_batch, part, part - 1};
  return std::nullopt;
}

// All messages in the common order. Messages of one moment do not depend on each other.
std::vector<SentMessage> messages_of(const PipelineTimeline& timeline) {
  std::vector<SentMessage> messages;
  for (int rank = 0; rank < timeline.shape.stages; ++rank)
    for (const TimedAction& timed : timeline.ranks[static_cast<std::size_t>(rank)].actions)
      if (const auto message = message_after(timeline.shape, rank, timed.action))
        messages.push_back({timed.end, *message});
  const auto key = [](const SentMessage& sent) {
    return std::tuple(sent.time, sent.message.kind, sent.message.micro_batch, sent.message.from_part);
  };
  std::sort(messages.begin(), messages.end(),
            [&](const SentMessage& a, const SentMessage& b) { return key(a) < key(b); });
  return messages;
}

// Merges the rank's actions with its messages. A message comes before the actions that begin at its moment.
std::vector<PipelineStep> steps_of(const PipelineTimeline& timeline, int rank,
                                   const std::vector<SentMessage>& messages) {
  const PipelineShape& shape = timeline.shape;
  const auto& actions = timeline.ranks[static_cast<std::size_t>(rank)].actions;
  std::vector<PipelineStep> steps;
  auto next = actions.begin();
  for (const SentMessage& sent : messages) {
    const bool sends = shape.rank_of(sent.message.from_part) == rank;
    if (!sends && shape.rank_of(sent.message.to_part) != rank) continue;
    for (; next != actions.end() && next->start < sent.time; ++next)
      steps.push_back({.kind = StepKind::COMPUTE, .action = next->action, .message = {}});
    steps.push_back(
        {.kind = sends ? StepKind::SEND : StepKind::RECEIVE, .action = {}, .message = sent.message});
  }
  for (; next != actions.end(); ++next)
    steps.push_back({.kind = StepKind::COMPUTE, .action = next->action, .message = {}});
  return steps;
}

// Returns whether the action of `rank` is the one that takes the message.
bool takes(const PipelineShape& shape, int rank, const PipelineAction& action,
           const PipelineMessage& message) {
  const bool is_backward = action.kind == BACKWARD || action.kind == BACKWARD_INPUT;
  return message.micro_batch == action.micro_batch && message.to_part == shape.part_of(rank, action.chunk) &&
         (message.kind == PipelineMessageKind::ACTIVATION ? action.kind == FORWARD : is_backward);
}

int places_of(const PipelineShape& shape, int rank, const std::vector<PipelineStep>& steps) {
  std::vector<PipelineMessage> held;
  std::size_t most = 0;
  for (const PipelineStep& step : steps) {
    if (step.kind == StepKind::RECEIVE) held.push_back(step.message);
    most = std::max(most, held.size());
    if (step.kind == StepKind::COMPUTE)
      std::erase_if(held,
                    [&](const PipelineMessage& message) { return takes(shape, rank, step.action, message); });
  }
  return static_cast<int>(most);
}

std::string step_label(const PipelineShape& shape, const PipelineStep& step) {
  const bool with_chunk = shape.virtual_stages > 1;
  if (step.kind == StepKind::COMPUTE) return label_of(step.action, with_chunk);
  const PipelineMessage& message = step.message;
  std::string label = label_of({FORWARD, message.micro_batch, shape.chunk_of(message.from_part)}, with_chunk);
  label[0] = message.kind == PipelineMessageKind::ACTIVATION ? 'f' : 'g';
  return step.kind == StepKind::SEND ? str(label, '>', shape.rank_of(message.to_part))
                                     : str(label, '<', shape.rank_of(message.from_part));
}

}  // namespace

PipelineProgram pipeline_program(const PipelineSchedule& schedule) {
  // Any times give an order that all ranks can follow, as long as every action takes some. The program's own
  // work may be 0: then messages of one moment could depend on each other.
  PipelineSchedule timed = schedule;
  timed.shape.work = PipelineWork();
  const PipelineTimeline timeline = pipeline_timeline(timed);
  const std::vector<SentMessage> messages = messages_of(timeline);
  PipelineProgram program{.shape = schedule.shape, .ranks = {}, .places = {}};
  for (int rank = 0; rank < schedule.shape.stages; ++rank) {
    program.ranks.push_back(steps_of(timeline, rank, messages));
    program.places.push_back(places_of(schedule.shape, rank, program.ranks.back()));
  }
  return program;
}

std::string to_text(const PipelineProgram& program) {
  std::string text;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    text += str("rank ", rank, ' ');
    for (const PipelineStep& step : program.ranks[rank]) text += str(' ', step_label(program.shape, step));
    text += '\n';
  }
  return text;
}

}  // namespace lockstep
