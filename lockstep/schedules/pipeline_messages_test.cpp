#include "lockstep/schedules/pipeline_messages.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <optional>

#include "lockstep/base/str.h"
#include "testing/pipeline_shapes.h"

namespace lockstep::pipeline_messages_test {
namespace {

using ::testing::ElementsAre;
using enum PipelineActionKind;
using StepKind = PipelineStep::Kind;

std::string program_text(const PipelineShape& shape) {
  return to_text(pipeline_program(pipeline_schedule(shape)));
}

TEST(PipelineMessages, StandBetweenTheActions) {
  EXPECT_EQ(program_text({.stages = 2, .micro_batches = 2}),
            "rank 0  F0 f0>1 F1 f1>1 g0<1 B0 g1<1 B1\n"
            "rank 1  f0<0 F0 f1<0 B0 g0>0 F1 B1 g1>0\n");
  EXPECT_EQ(program_text({.kind = PipelineScheduleKind::GPIPE, .stages = 3, .micro_batches = 1}),
            "rank 0  F0 f0>1 g0<1 B0\n"
            "rank 1  f0<0 F0 f0>2 g0<2 B0 g0>0\n"
            "rank 2  f0<1 F0 B0 g0>1\n");
}

// Two ranks with two chunks each: the model's parts are 0a, 1a, 0b, 1b, so the ring has both directions.
TEST(PipelineMessages, OfChunksGoRoundTheRing) {
  EXPECT_EQ(program_text({.stages = 2, .micro_batches = 1, .virtual_stages = 2}),
            "rank 0  F0a f0a>1 f0a<1 F0b f0b>1 g0b<1 B0b g0b>1 g0a<1 B0a\n"
            "rank 1  f0a<0 F0a f0a>0 f0b<0 F0b B0b g0b>0 g0b<0 B0a g0a>0\n");
}

TEST(PipelineMessages, OfOneRankAreNone) {
  EXPECT_EQ(program_text({.stages = 1, .micro_batches = 2, .virtual_stages = 2}),
            "rank 0  F0a F0b B0b F1a B0a F1b B1b B1a\n");
}

TEST(PipelineMessages, SendTheGradientBeforeThatOfWeights) {
  EXPECT_EQ(program_text({.kind = PipelineScheduleKind::ZB_H1, .stages = 2, .micro_batches = 1}),
            "rank 0  F0 f0>1 g0<1 B0\n"
            "rank 1  f0<0 F0 I0 g0>0 W0\n");
}

// The last rank has both parts at the turn.
TEST(PipelineMessages, StayAtTheTurnOfAV) {
  EXPECT_EQ(program_text(
                {.kind = PipelineScheduleKind::ZB_V, .stages = 2, .micro_batches = 1, .virtual_stages = 2}),
            "rank 0  F0a f0a>1 f0b<1 F0b I0b g0b>1 W0b g0a<1 B0a\n"
            "rank 1  f0a<0 F0a F0b f0b>0 g0b<0 I0b I0a g0a>0 W0b W0a\n");
}

// The messages from one rank to another, in the order of one side.
std::vector<PipelineMessage> messages_between(const PipelineProgram& program, int from, int to,
                                              StepKind side) {
  std::vector<PipelineMessage> messages;
  for (const PipelineStep& step : program.ranks[static_cast<std::size_t>(side == StepKind::SEND ? from : to)])
    if (step.kind == side && program.shape.rank_of(step.message.from_part) == from &&
        program.shape.rank_of(step.message.to_part) == to)
      messages.push_back(step.message);
  return messages;
}

std::vector<PipelineShape> all_pipeline_shapes() {
  std::vector<PipelineShape> shapes = computed_pipeline_shapes();
  for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::EXCEPT_LAST, RecomputeMode::ALWAYS})
    for (const PipelineShape& shape : every_pipeline_shape(mode)) shapes.push_back(shape);
  return shapes;
}

TEST(PipelineMessages, HaveOneOrderOnBothSides) {
  for (const PipelineShape& shape : all_pipeline_shapes()) {
    const PipelineProgram program = pipeline_program(pipeline_schedule(shape));
    std::size_t all = 0;
    for (int from = 0; from < shape.stages; ++from)
      for (int to = 0; to < shape.stages; ++to) {
        const auto sent = messages_between(program, from, to, StepKind::SEND);
        ASSERT_EQ(sent, messages_between(program, from, to, StepKind::RECEIVE)) << to_text(program);
        all += sent.size();
      }
    // an activation and a gradient of each micro-batch between neighbouring parts, but not at the turn of a V
    const int turns = shape.kind == PipelineScheduleKind::ZB_V ? 1 : 0;
    const int each = shape.stages == 1 ? 0 : 2 * (shape.parts() - 1 - turns);
    ASSERT_EQ(all, static_cast<std::size_t>(each * shape.micro_batches)) << to_text(program);
  }
}

using Value = std::tuple<PipelineMessageKind, int, int>;  // of a micro-batch, computed by a part

// The input of an action that comes from another rank.
std::optional<Value> input_of(const PipelineShape& shape, int rank, const PipelineAction& action) {
  const int part = shape.part_of(rank, action.chunk);
  const auto is_here = [&](int other) { return shape.rank_of(other) == rank; };
  if (action.kind == FORWARD && part > 0 && !is_here(part - 1))
    return Value{PipelineMessageKind::ACTIVATION, action.micro_batch, part - 1};
  const bool is_backward = action.kind == BACKWARD || action.kind == BACKWARD_INPUT;
  if (is_backward && part + 1 < shape.parts() && !is_here(part + 1))
    return Value{PipelineMessageKind::GRADIENT, action.micro_batch, part + 1};
  return std::nullopt;
}

// A rank that has what it computes with, sends what it has computed, and uses all it received.
void expect_a_rank_can_run(const PipelineProgram& program, int rank) {
  std::map<Value, int> received, computed;
  for (const PipelineStep& step : program.ranks[static_cast<std::size_t>(rank)]) {
    const auto& [kind, action, message] = step;
    const Value value{message.kind, message.micro_batch, message.from_part};
    if (kind == StepKind::RECEIVE) ++received[value];
    if (kind == StepKind::SEND) ASSERT_EQ(computed[value]--, 1) << to_text(program);
    if (kind != StepKind::COMPUTE) continue;
    if (const auto input = input_of(program.shape, rank, action))
      ASSERT_EQ(received[*input]--, 1) << to_text(program);
    const int part = program.shape.part_of(rank, action.chunk);
    if (action.kind == FORWARD) computed[{PipelineMessageKind::ACTIVATION, action.micro_batch, part}] = 1;
    if (action.kind == BACKWARD || action.kind == BACKWARD_INPUT)
      computed[{PipelineMessageKind::GRADIENT, action.micro_batch, part}] = 1;
  }
  for (const auto& [value, count] : received) ASSERT_EQ(count, 0) << to_text(program);
}

TEST(PipelineMessages, ArriveBeforeTheirUseAndLeaveAfterTheirAction) {
  for (const PipelineShape& shape : all_pipeline_shapes()) {
    const PipelineProgram program = pipeline_program(pipeline_schedule(shape));
    for (int rank = 0; rank < shape.stages; ++rank) expect_a_rank_can_run(program, rank);
  }
}

// Runs the lists with sends that block while `buffers` messages of this pair of ranks have no receive yet: 0
// is a rendezvous. Returns whether all ranks come to their end. A receive takes the pair's oldest message, or
// meets the sender.
class BlockingRun {
 public:
  BlockingRun(const PipelineProgram& program, std::size_t buffers)
      : program_(program), buffers_(buffers), at_(program.ranks.size(), 0) {}

  bool ends() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (std::size_t rank = 0; rank < at_.size(); ++rank)
        while (const PipelineStep* step = now(rank)) {
          if (!runs(*step)) break;
          ++at_[rank];
          has_moved = true;
        }
    }
    for (std::size_t rank = 0; rank < at_.size(); ++rank)
      if (now(rank) != nullptr) return false;
    return true;
  }

 private:
  const PipelineStep* now(std::size_t rank) const {
    return at_[rank] == program_.ranks[rank].size() ? nullptr : &program_.ranks[rank][at_[rank]];
  }
  std::size_t rank_of(int part) const { return static_cast<std::size_t>(program_.shape.rank_of(part)); }

  bool runs(const PipelineStep& step) {
    if (step.kind == StepKind::COMPUTE) return true;
    const std::size_t from = rank_of(step.message.from_part), to = rank_of(step.message.to_part);
    auto& on_the_way = channels_[{from, to}];
    if (step.kind == StepKind::SEND) {
      if (on_the_way.size() >= buffers_) return false;  // without buffers, the receiver takes it from here
      on_the_way.push_back(step.message);
      return true;
    }
    if (!on_the_way.empty()) {
      if (on_the_way.front() != step.message) return false;
      on_the_way.erase(on_the_way.begin());
      return true;
    }
    const PipelineStep* sender = now(from);
    if (sender == nullptr || sender->kind != StepKind::SEND || sender->message != step.message) return false;
    ++at_[from];
    return true;
  }

  const PipelineProgram& program_;
  std::size_t buffers_;
  std::vector<std::size_t> at_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<PipelineMessage>> channels_;
};

TEST(PipelineMessages, NeverDeadlockThoughSendsBlockAndNothingIsBuffered) {
  for (const PipelineShape& shape : all_pipeline_shapes()) {
    const PipelineProgram program = pipeline_program(pipeline_schedule(shape));
    ASSERT_TRUE(BlockingRun(program, 0).ends()) << to_text(program);
    ASSERT_TRUE(BlockingRun(program, 3).ends()) << to_text(program);
  }
}

// Receives directly before the action that uses them, as one would write it first.
PipelineProgram received_when_used(const PipelineProgram& program) {
  PipelineProgram late{.shape = program.shape, .ranks = {}, .places = {}};
  for (int rank = 0; rank < program.shape.stages; ++rank) {
    auto& steps = late.ranks.emplace_back();
    std::map<Value, PipelineStep> received;
    for (const PipelineStep& step : program.ranks[static_cast<std::size_t>(rank)]) {
      const PipelineMessage& message = step.message;
      if (step.kind == StepKind::RECEIVE) {
        received[{message.kind, message.micro_batch, message.from_part}] = step;
        continue;
      }
      if (step.kind == StepKind::COMPUTE)
        if (const auto input = input_of(program.shape, rank, step.action))
          steps.push_back(received.at(*input));
      steps.push_back(step);
    }
  }
  return late;
}

// The check above can fail: with late receives, GPipe alone runs without buffers.
TEST(PipelineMessages, ReceivedWhenUsedDeadlockWithoutBuffers) {
  for (const auto kind : {PipelineScheduleKind::ONE_F_ONE_B, PipelineScheduleKind::ZB_H1}) {
    const PipelineProgram late = received_when_used(pipeline_program(pipeline_schedule({kind, 2, 4})));
    EXPECT_FALSE(BlockingRun(late, 0).ends()) << to_text(late);
    EXPECT_TRUE(BlockingRun(late, 1).ends()) << to_text(late);
  }
  for (const PipelineShape& shape : every_pipeline_shape()) {
    if (shape.kind != PipelineScheduleKind::GPIPE) continue;
    const PipelineProgram late = received_when_used(pipeline_program(pipeline_schedule(shape)));
    ASSERT_TRUE(BlockingRun(late, 0).ends()) << to_text(late);
  }
}

TEST(PipelineMessages, NeedFewPlaces) {
  EXPECT_THAT(pipeline_program(pipeline_schedule({PipelineScheduleKind::GPIPE, 4, 8})).places,
              ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(pipeline_program(pipeline_schedule({PipelineScheduleKind::ONE_F_ONE_B, 4, 8})).places,
              ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(pipeline_program(pipeline_schedule({PipelineScheduleKind::ZB_H1, 4, 8})).places,
              ElementsAre(1, 2, 2, 1));
  for (const PipelineShape& shape : every_pipeline_shape()) {
    const PipelineProgram program = pipeline_program(pipeline_schedule(shape));
    const int most = *std::max_element(program.places.begin(), program.places.end());
    if (shape.virtual_stages == 1) ASSERT_LE(most, 2) << to_text(program);
    ASSERT_LE(most, 2 * shape.stages) << to_text(program);
  }
}

}  // namespace
}  // namespace lockstep::pipeline_messages_test
