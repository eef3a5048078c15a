#include "lockstep/schedules/pipeline_schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/schedules/joined_backwards.h"
#include "lockstep/schedules/pipeline_timeline.h"
#include "testing/pipeline_shapes.h"

namespace lockstep::pipeline_schedule_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using enum PipelineActionKind;

constexpr auto GPIPE = PipelineScheduleKind::GPIPE;
constexpr auto ONE_F_ONE_B = PipelineScheduleKind::ONE_F_ONE_B;
constexpr auto ZB_H1 = PipelineScheduleKind::ZB_H1;
constexpr auto ZB_V = PipelineScheduleKind::ZB_V;

bool is_split(const PipelineShape& shape) { return shape.kind == ZB_H1 || shape.kind == ZB_V; }

std::string schedule_text(const PipelineShape& shape) { return to_text(pipeline_schedule(shape)); }

TEST(PipelineSchedule, OfGPipeIsItsPaper) {
  EXPECT_EQ(schedule_text({.kind = GPIPE, .stages = 2, .micro_batches = 3}),
            "gpipe: 2 stages, 3 micro-batches\n"
            "rank 0  F0 F1 F2 B2 B1 B0\n"
            "rank 1  F0 F1 F2 B2 B1 B0\n");
}

TEST(PipelineSchedule, Of1F1BHasAWarmUp) {
  EXPECT_EQ(schedule_text({.stages = 4, .micro_batches = 6}),
            "1f1b: 4 stages, 6 micro-batches\n"
            "rank 0  F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5\n"
            "rank 1  F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5\n"
            "rank 2  F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5\n"
            "rank 3  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5\n");
  EXPECT_EQ(schedule_text({.stages = 3, .micro_batches = 1}),
            "1f1b: 3 stages, 1 micro-batch\n"
            "rank 0  F0 B0\n"
            "rank 1  F0 B0\n"
            "rank 2  F0 B0\n");
}

// Megatron's table for 2 stages, 4 micro-batches and 2 chunks: micro-batches 0 1, 0 1, 2 3, 2 3 of chunks
// a, b, a, b; backwards the same of b, a, b, a; 2 (p - r - 1) + (v - 1) p forwards before the first pair.
TEST(PipelineSchedule, Of1F1BWithChunksIsMegatrons) {
  EXPECT_EQ(schedule_text({.stages = 2, .micro_batches = 4, .virtual_stages = 2}),
            "1f1b: 2 stages, 4 micro-batches, 2 chunks a rank\n"
            "rank 0  F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a\n"
            "rank 1  F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a\n");
}

TEST(PipelineSchedule, OfIndivisibleMicroBatchesHasGroupsOfNearlyOneSize) {
  // 5 = 3 + 2 in place of Megatron's 2 + 2 + 1
  EXPECT_EQ(schedule_text({.stages = 2, .micro_batches = 5, .virtual_stages = 2}),
            "1f1b: 2 stages, 5 micro-batches, 2 chunks a rank\n"
            "rank 0  F0a F1a F2a F0b F1b F2b B0b F3a B1b F4a B2b F3b B0a F4b B1a B2a B3b B4b B3a B4a\n"
            "rank 1  F0a F1a F2a F0b B0b F1b B1b F2b B2b F3a B0a F4a B1a F3b B2a F4b B3b B4b B3a B4a\n");
  // fewer micro-batches than stages: one group
  EXPECT_EQ(schedule_text({.stages = 3, .micro_batches = 2, .virtual_stages = 2}),
            "1f1b: 3 stages, 2 micro-batches, 2 chunks a rank\n"
            "rank 0  F0a F1a F0b F1b B0b B1b B0a B1a\n"
            "rank 1  F0a F1a F0b F1b B0b B1b B0a B1a\n"
            "rank 2  F0a F1a F0b B0b F1b B1b B0a B1a\n");
}

// Figure 3 of the paper, above: the gradient of weights is behind by as many micro-batches as the rank has
// fewer forwards before it.
TEST(PipelineSchedule, OfZeroBubbleIsItsPapersFigure) {
  EXPECT_EQ(schedule_text({.kind = ZB_H1, .stages = 3, .micro_batches = 4}),
            "zb-h1: 3 stages, 4 micro-batches\n"
            "rank 0  F0 F1 F2 B0 F3 B1 B2 B3\n"
            "rank 1  F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\n"
            "rank 2  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n");
}

// Section 6 of the paper: each rank has one part on the way down (a) and one on the way up (b).
TEST(PipelineSchedule, OfTheVGoesDownAndUp) {
  const PipelineShape shape{.kind = ZB_V, .stages = 2, .micro_batches = 4, .virtual_stages = 2};
  EXPECT_EQ(to_text(split_schedule(shape)),
            "zb-v: 2 stages, 4 micro-batches, 2 chunks a rank\n"
            "rank 0  F0a F1a F2a F0b I0b W0b F1b I1b W1b F3a B0a F2b I2b W2b B1a F3b I3b W3b B2a B3a\n"
            "rank 1  F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b F3a I1a W1a F3b I2b W2b I2a I3b I3a W2a "
            "W3b W3a\n");
  // Split are those for which the other rank waits, at the beginning and the end.
  EXPECT_EQ(schedule_text(shape),
            "zb-v: 2 stages, 4 micro-batches, 2 chunks a rank\n"
            "rank 0  F0a F1a F2a F0b I0b W0b F1b B1b F3a B0a F2b B2b B1a F3b I3b W3b B2a B3a\n"
            "rank 1  F0a F0b F1a F1b B0b F2a B0a F2b B1b F3a I1a W1a F3b B2b I2a I3b I3a W2a W3b W3a\n");
}

// Rank 1 begins after the forward of half a part, which is 1/4, and is busy for its 12 from then on.
TEST(PipelineSchedule, OfAVWithUnequalPartsWaitsLess) {
  const PipelineShape shape{.kind = ZB_V,
                            .stages = 2,
                            .micro_batches = 4,
                            .virtual_stages = 2,
                            .work = {.part_sizes = {1, 2, 2, 3}}};
  EXPECT_EQ(to_text(shape), "zb-v: 2 stages, 4 micro-batches, 2 chunks a rank, parts of 1 2 2 3");
  const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape));
  double busy_until = 0.25;
  for (const TimedAction& timed : timeline.ranks[1].actions) {
    EXPECT_EQ(timed.start, busy_until) << label_of(timed.action, true);
    busy_until = timed.end;
  }
  EXPECT_EQ(busy_until, 12.25);
  EXPECT_EQ(timeline.makespan(), 12.25);
}

// torchgpipe's check of its checkpoint modes: with 2 micro-batches 2, 1 and 0 are recomputed.
TEST(PipelineSchedule, RecomputesAllMicroBatchesOrAllButTheLast) {
  PipelineShape shape{.kind = GPIPE, .stages = 1, .micro_batches = 2, .recompute = RecomputeMode::ALWAYS};
  EXPECT_EQ(schedule_text(shape),
            "gpipe: 1 stage, 2 micro-batches, recompute always\nrank 0  F0 F1 R1 B1 R0 B0\n");
  shape.recompute = RecomputeMode::EXCEPT_LAST;
  EXPECT_EQ(schedule_text(shape),
            "gpipe: 1 stage, 2 micro-batches, recompute except_last\nrank 0  F0 F1 B1 R0 B0\n");
  shape.recompute = RecomputeMode::NEVER;
  EXPECT_EQ(schedule_text(shape), "gpipe: 1 stage, 2 micro-batches\nrank 0  F0 F1 B1 B0\n");
  EXPECT_EQ(schedule_text({ZB_H1, 1, 2, 1, RecomputeMode::ALWAYS}),
            "zb-h1: 1 stage, 2 micro-batches, recompute always\nrank 0  F0 R0 B0 F1 R1 B1\n");
}

// How often each action of a rank is in the table.
std::map<std::tuple<int, int, PipelineActionKind>, int> counts_of(
    const std::vector<PipelineAction>& actions) {
  std::map<std::tuple<int, int, PipelineActionKind>, int> counts;
  for (const PipelineAction& action : actions) ++counts[{action.micro_batch, action.chunk, action.kind}];
  return counts;
}

// What a rank does for each micro-batch. The first part has nobody to send a gradient to.
std::map<std::tuple<int, int, PipelineActionKind>, int> once_each(const PipelineShape& shape, int rank) {
  std::map<std::tuple<int, int, PipelineActionKind>, int> once;
  for (int i = 0; i < shape.micro_batches; ++i) {
    for (int c = 0; c < shape.virtual_stages; ++c) {
      const bool has_halves = is_split(shape) && shape.part_of(rank, c) > 0;
      once[{i, c, FORWARD}] = 1;
      once[{i, c, has_halves ? BACKWARD_INPUT : BACKWARD}] = 1;
      if (has_halves) once[{i, c, BACKWARD_WEIGHT}] = 1;
      if (shape.recompute == RecomputeMode::ALWAYS ||
          (shape.recompute == RecomputeMode::EXCEPT_LAST && i + 1 < shape.micro_batches))
        once[{i, c, RECOMPUTE}] = 1;
    }
  }
  return once;
}

TEST(PipelineSchedule, HasEveryActionOnce) {
  for (const PipelineShape& shape : computed_pipeline_shapes())
    for (int rank = 0; rank < shape.stages; ++rank)
      ASSERT_EQ(counts_of(split_schedule(shape).ranks[static_cast<std::size_t>(rank)]),
                once_each(shape, rank))
          << to_text(shape);
  for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::EXCEPT_LAST, RecomputeMode::ALWAYS}) {
    for (const PipelineShape& shape : every_pipeline_shape(mode)) {
      const PipelineSchedule schedule = split_schedule(shape);
      ASSERT_EQ(schedule.ranks.size(), static_cast<std::size_t>(shape.stages));
      for (int rank = 0; rank < shape.stages; ++rank)
        ASSERT_EQ(counts_of(schedule.ranks[static_cast<std::size_t>(rank)]), once_each(shape, rank))
            << to_text(schedule);
    }
  }
}

// The loss of a micro-batch may free what its backward needs next: a recompute stands directly before it.
TEST(PipelineSchedule, RecomputesDirectlyBeforeTheBackward) {
  for (const PipelineShape& shape : every_pipeline_shape(RecomputeMode::ALWAYS)) {
    for (const auto& actions : pipeline_schedule(shape).ranks) {
      for (std::size_t k = 0; k < actions.size(); ++k) {
        if (actions[k].kind != RECOMPUTE) continue;
        ASSERT_LT(k + 1, actions.size());
        ASSERT_EQ(actions[k + 1].micro_batch, actions[k].micro_batch);
        ASSERT_EQ(actions[k + 1].chunk, actions[k].chunk);
        ASSERT_TRUE(actions[k + 1].kind == BACKWARD || actions[k + 1].kind == BACKWARD_INPUT);
      }
    }
  }
}

TEST(PipelineSchedule, KnowsThePartsOfTheModel) {
  const PipelineShape shape{.stages = 4, .virtual_stages = 2};
  EXPECT_EQ(shape.parts(), 8);
  for (int part = 0; part < 8; ++part)
    EXPECT_EQ(shape.part_of(shape.rank_of(part), shape.chunk_of(part)), part);
  EXPECT_EQ(shape.part_of(1, 1), 5);
  const PipelineShape v{.kind = ZB_V, .stages = 4, .virtual_stages = 2};
  for (int part = 0; part < 8; ++part) EXPECT_EQ(v.part_of(v.rank_of(part), v.chunk_of(part)), part);
  EXPECT_EQ(v.part_of(1, 1), 6);
}

TEST(PipelineSchedule, RefusesWhatIsNoPipeline) {
  const auto refused = [](const PipelineShape& shape, const std::string& text) {
    EXPECT_THAT([&] { pipeline_schedule(shape); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused({.stages = 0}, "stages is 0; it is at least 1");
  refused({.micro_batches = 0}, "micro_batches is 0");
  refused({.virtual_stages = -1}, "virtual_stages is -1");
  refused({.kind = GPIPE, .virtual_stages = 2}, "gpipe has one model chunk on each rank, not 2");
  refused({.kind = ZB_H1, .virtual_stages = 2}, "virtual stages are for 1f1b");
  refused({.kind = ZB_V, .virtual_stages = 1},
          "zb-v has two model chunks on each rank, and virtual_stages is 1");
  refused({.stages = 2, .work = {.part_sizes = {1}}}, "part_sizes has 1 parts; expected 2, 1 for each of 2");
  refused({.stages = 2, .work = {.part_sizes = {1, -1}}}, "part_sizes has -1; sizes are finite and not");
  refused({.stages = 2, .work = {.part_sizes = {0, 0}}}, "all part_sizes are 0");
  refused({.work = {.forward = 0}}, "the work of forward is 0; it is finite");
  refused({.work = {.backward_weight = std::nan("")}}, "the work of backward_weight is nan");
}

TEST(PipelineSchedule, LabelsChunksByLetters) {
  EXPECT_EQ(label_of({FORWARD, 3, 0}, false), "F3");
  EXPECT_EQ(label_of({BACKWARD, 12, 25}, true), "B12z");
  EXPECT_EQ(label_of({BACKWARD_WEIGHT, 0, 26}, true), "W0aa");
  EXPECT_EQ(label_of({RECOMPUTE, 0, 27}, true), "R0ab");
}

}  // namespace
}  // namespace lockstep::pipeline_schedule_test
