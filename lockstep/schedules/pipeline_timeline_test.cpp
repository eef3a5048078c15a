#include "lockstep/schedules/pipeline_timeline.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "lockstep/base/error.h"
#include "testing/pipeline_shapes.h"

namespace lockstep::pipeline_timeline_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using enum PipelineActionKind;

// Start and end of each action of a rank.
std::vector<std::pair<double, double>> spans_of(const PipelineTimeline& timeline, std::size_t rank) {
  std::vector<std::pair<double, double>> spans;
  for (const TimedAction& timed : timeline.ranks[rank].actions) spans.emplace_back(timed.start, timed.end);
  return spans;
}

TEST(PipelineTimeline, WaitsForTransfers) {
  // rank 0: F0 F1 B0 B1, rank 1: F0 B0 F1 B1; F 1, B 2 + 1, a transfer of 1/2
  const PipelineTimeline timeline = pipeline_timeline(
      pipeline_schedule({.stages = 2, .micro_batches = 2}),
      {.forward = 1, .backward_input = 2, .backward_weight = 1, .transfer = 0.5, .sizes = {}});
  EXPECT_THAT(spans_of(timeline, 0),
              ElementsAre(std::pair(0, 1), std::pair(1, 2), std::pair(6, 9), std::pair(10, 13)));
  EXPECT_THAT(spans_of(timeline, 1), ElementsAre(std::pair(1.5, 2.5), std::pair(2.5, 5.5),
                                                 std::pair(5.5, 6.5), std::pair(6.5, 9.5)));
  EXPECT_EQ(timeline.makespan(), 13);
  EXPECT_THAT(timeline.bubble(), DoubleEq(10.0 / 26));
}

TEST(PipelineTimeline, SendsTheGradientOfInputsBeforeThatOfWeights) {
  // rank 0: F0 B0, rank 1: F0 I0 W0
  const PipelineTimeline timeline = pipeline_timeline(
      pipeline_schedule({.kind = PipelineScheduleKind::ZB_H1, .stages = 2, .micro_batches = 1}),
      {.forward = 1, .backward_input = 2, .backward_weight = 4, .transfer = 0, .sizes = {}});
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre(std::pair(0, 1), std::pair(4, 10)));
  EXPECT_THAT(spans_of(timeline, 1), ElementsAre(std::pair(1, 2), std::pair(2, 4), std::pair(4, 8)));
}

TEST(PipelineTimeline, TakesTheMeasuredTimeOfEachAction) {
  // rank 0: F0 F1 B0 B1, rank 1: F0 B0 F1 B1
  const PipelineSchedule schedule = pipeline_schedule({.stages = 2, .micro_batches = 2});
  const PipelineTimeline timeline = pipeline_timeline(schedule, {{1, 4, 2, 3}, {2, 5, 1, 0}});
  EXPECT_THAT(spans_of(timeline, 0),
              ElementsAre(std::pair(0, 1), std::pair(1, 5), std::pair(8, 10), std::pair(10, 13)));
  EXPECT_THAT(spans_of(timeline, 1),
              ElementsAre(std::pair(1, 3), std::pair(3, 8), std::pair(8, 9), std::pair(9, 9)));
  EXPECT_EQ(timeline.ranks[0].work, 10);
  EXPECT_EQ(timeline.ranks[0].peak_in_flight, 2);
  EXPECT_EQ(timeline.makespan(), 13);
}

TEST(PipelineTimeline, RefusesMeasuredTimesOfAnotherTable) {
  const PipelineSchedule schedule = pipeline_schedule({.stages = 2, .micro_batches = 1});
  const auto refused = [&](const std::vector<std::vector<double>>& measured, const std::string& text) {
    EXPECT_THAT([&] { pipeline_timeline(schedule, measured); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused({{1, 1}}, "measured times of 1 ranks for a schedule of 2");
  refused({{1, 1}, {1}}, "rank 1 has 2 actions, but 1 measured times");
  refused({{1, 1}, {1, -1}}, "a measured time of rank 1 is -1");
  refused({{std::nan(""), 1}, {1, 1}}, "a measured time of rank 0 is nan");
}

TEST(PipelineTimeline, ScalesUnequalParts) {
  // rank 0 has a quarter of the model: F0 B0; rank 1 three quarters. F 1, I 2, W 1 of a half.
  PipelineShape shape{.stages = 2, .micro_batches = 1, .work = {.part_sizes = {10, 30}, .backward_input = 2}};
  const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape));
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre(std::pair(0, 0.5), std::pair(6.5, 8)));
  EXPECT_THAT(spans_of(timeline, 1), ElementsAre(std::pair(0.5, 2), std::pair(2, 6.5)));
  EXPECT_EQ(timeline.ranks[0].peak_size, 0.5);
  EXPECT_EQ(timeline.ranks[1].peak_size, 1.5);
  // A rank's way down and its work: 0 + 2, 1/2 + 6.
  EXPECT_EQ(least_makespan(shape), 6.5);
}

TEST(PipelineTimeline, ScalesUnequalMicroBatches) {
  // A batch of 5 rows in 2: 3 and 2 rows, so the second takes two thirds of the first.
  const PipelineTimeline timeline = pipeline_timeline(
      pipeline_schedule({.kind = PipelineScheduleKind::GPIPE, .micro_batches = 2}),
      {.forward = 3, .backward_input = 3, .backward_weight = 3, .transfer = 0, .sizes = {1, 2.0 / 3}});
  EXPECT_THAT(spans_of(timeline, 0),
              ElementsAre(std::pair(0, 3), std::pair(3, 5), std::pair(5, 9), std::pair(9, 15)));
  EXPECT_EQ(timeline.bubble(), 0);
}

TEST(PipelineTimeline, RecomputesWhileTheGradientIsOnItsWay) {
  // rank 0: F0 R0 B0, rank 1: F0 R0 B0. Rank 0 recomputes from 1 to 2, and the gradient comes at 5.
  const PipelineTimeline timeline = pipeline_timeline(
      pipeline_schedule({.stages = 2, .micro_batches = 1, .recompute = RecomputeMode::ALWAYS}));
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre(std::pair(0, 1), std::pair(1, 2), std::pair(5, 7)));
  EXPECT_THAT(spans_of(timeline, 1), ElementsAre(std::pair(1, 2), std::pair(2, 3), std::pair(3, 5)));
}

TEST(PipelineTimeline, OfOneRankHasNoTransfers) {
  const PipelineTimeline timeline = pipeline_timeline(
      pipeline_schedule({.stages = 1, .micro_batches = 3, .virtual_stages = 4}),
      {.forward = 4, .backward_input = 4, .backward_weight = 4, .transfer = 100, .sizes = {}});
  EXPECT_EQ(timeline.makespan(), 36);
  EXPECT_EQ(timeline.bubble(), 0);
}

using Ends = std::map<std::tuple<int, int, PipelineActionKind>, TimedAction>;  // by part and micro-batch

Ends actions_by_part(const PipelineTimeline& timeline) {
  Ends ends;
  for (int rank = 0; rank < timeline.shape.stages; ++rank)
    for (const TimedAction& timed : timeline.ranks[static_cast<std::size_t>(rank)].actions)
      ends[{timeline.shape.part_of(rank, timed.action.chunk), timed.action.micro_batch, timed.action.kind}] =
          timed;
  return ends;
}

// Every action begins when what it needs is computed and has travelled, and not before.
void expect_dependencies(const PipelineTimeline& timeline, double transfer) {
  const Ends ends = actions_by_part(timeline);
  const PipelineShape& shape = timeline.shape;
  const auto travel = [&](int from, int to) {
    return shape.rank_of(from) == shape.rank_of(to) ? 0 : transfer;
  };
  const auto gradient_of = [&](int part, int i) {
    return ends.contains({part, i, BACKWARD_INPUT}) ? BACKWARD_INPUT : BACKWARD;
  };
  for (int part = 0; part < shape.parts(); ++part) {
    for (int i = 0; i < shape.micro_batches; ++i) {
      const TimedAction& forward = ends.at({part, i, FORWARD});
      if (part > 0) ASSERT_GE(forward.start, ends.at({part - 1, i, FORWARD}).end + travel(part - 1, part));
      const TimedAction& gradient = ends.at({part, i, gradient_of(part, i)});
      ASSERT_GE(gradient.start, forward.end);
      if (part + 1 < shape.parts())
        ASSERT_GE(gradient.start,
                  ends.at({part + 1, i, gradient_of(part + 1, i)}).end + travel(part + 1, part));
      if (gradient_of(part, i) == BACKWARD_INPUT)
        ASSERT_GE(ends.at({part, i, BACKWARD_WEIGHT}).start, gradient.end);
    }
  }
}

TEST(PipelineTimeline, OfEveryScheduleRespectsItsDependencies) {
  for (const PipelineShape& shape : computed_pipeline_shapes())
    expect_dependencies(pipeline_timeline(pipeline_schedule(shape)), 0);
  for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::ALWAYS})
    for (const PipelineShape& shape : every_pipeline_shape(mode))
      for (const double transfer : {0.0, 0.25, 40.0})
        expect_dependencies(pipeline_timeline(pipeline_schedule(shape), {.forward = 12,
                                                                         .backward_input = 24,
                                                                         .backward_weight = 7,
                                                                         .transfer = transfer,
                                                                         .sizes = {}}),
                            transfer);
}

// A rank computes one action at a time, in the table's order, and is idle only while an input is missing.
TEST(PipelineTimeline, KeepsTheTablesOrder) {
  for (const PipelineShape& shape : every_pipeline_shape()) {
    const PipelineSchedule schedule = pipeline_schedule(shape);
    const PipelineTimeline timeline = pipeline_timeline(schedule);
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      ASSERT_EQ(timeline.ranks[rank].actions.size(), schedule.ranks[rank].size());
      double free = 0;
      for (std::size_t k = 0; k < schedule.ranks[rank].size(); ++k) {
        ASSERT_EQ(timeline.ranks[rank].actions[k].action, schedule.ranks[rank][k]);
        ASSERT_GE(timeline.ranks[rank].actions[k].start, free);
        free = timeline.ranks[rank].actions[k].end;
      }
    }
  }
}

TEST(PipelineTimeline, RefusesTimesThatAreNone) {
  const auto refused = [](const PipelineTimes& times, const std::string& text) {
    EXPECT_THAT([&] { pipeline_timeline(pipeline_schedule({.micro_batches = 2}), times); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused({.forward = 0}, "the time forward is 0");
  refused({.backward_input = -1}, "the time backward_input is -1");
  refused({.backward_weight = std::nan("")}, "the time backward_weight is nan");
  refused({.transfer = std::numeric_limits<double>::infinity()}, "the time transfer is inf");
  refused({.sizes = {1, 0}}, "factor of a micro-batch is 0");
  refused({.sizes = {1}}, "sizes of 1 micro-batches for a schedule of 2");
}

TEST(PipelineTimeline, RefusesATableThatCannotRun) {
  const auto refused = [](const PipelineSchedule& schedule, const std::string& text) {
    EXPECT_THAT([&] { pipeline_timeline(schedule); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  PipelineSchedule own{.shape = {.stages = 2, .micro_batches = 1},
                       .ranks = {{{FORWARD}, {BACKWARD}}, {{BACKWARD}, {FORWARD}}}};
  refused(own, "rank 0 waits forever before action 1, B0a");
  own.ranks[1] = {{FORWARD}, {BACKWARD_WEIGHT}};
  refused(own, "rank 0 waits forever before action 1");
  own.ranks[0] = {{FORWARD}, {BACKWARD, 1}};
  refused(own, "rank 0 has micro-batch 1 of chunk 0; there are 1 micro-batches and 1 chunks");
  own.ranks[0] = {{FORWARD, 0, 1}};
  refused(own, "rank 0 has micro-batch 0 of chunk 1");
  own.ranks.pop_back();
  refused(own, "a table of 1 ranks for 2 stages");
}

// Why groups have nearly one size: 5 = 4 + 1 micro-batches of 3 chunks on 4 stages, with Megatron's warm-up.
TEST(PipelineTimeline, ShowsThatAShortLastGroupDeadlocks) {
  constexpr int P = 4, M = 5, V = 3;
  std::vector<PipelineAction> forwards;
  for (const auto& [first, size] : {std::pair(0, 4), std::pair(4, 1)})
    for (int chunk = 0; chunk < V; ++chunk)
      for (int i = 0; i < size; ++i) forwards.push_back({FORWARD, first + i, chunk});
  PipelineSchedule own{.shape = {.stages = P, .micro_batches = M, .virtual_stages = V}, .ranks = {}};
  for (std::size_t rank = 0; rank < P; ++rank) {
    const std::size_t warm_up = 2 * (P - rank - 1) + (V - 1) * P;
    auto& actions =
        own.ranks.emplace_back(forwards.begin(), forwards.begin() + std::min(warm_up, forwards.size()));
    for (std::size_t k = 0; k < forwards.size(); ++k) {
      if (warm_up + k < forwards.size()) actions.push_back(forwards[warm_up + k]);
      actions.push_back({BACKWARD, forwards[k].micro_batch, V - 1 - forwards[k].chunk});
    }
  }
  EXPECT_THAT([&] { pipeline_timeline(own); }, ThrowsMessage<InvalidArgument>(HasSubstr("waits forever")));
  const PipelineTimes thirds{
      .forward = 3, .backward_input = 3, .backward_weight = 3, .transfer = 0, .sizes = {}};
  EXPECT_EQ(pipeline_timeline(pipeline_schedule(own.shape), thirds).bubble(), 3.0 / (V * M + 3));
}

}  // namespace
}  // namespace lockstep::pipeline_timeline_test
