// What schedules cost, against the formulas of their papers, exactly: all times are whole numbers that 12
// divides, so that the v-th part of each is a whole number, too.
#include <gmock/gmock.h>

#include <algorithm>

#include "lockstep/schedules/pipeline_timeline.h"
#include "testing/pipeline_shapes.h"

namespace lockstep::pipeline_costs_test {
namespace {

constexpr auto GPIPE = PipelineScheduleKind::GPIPE;
constexpr auto ONE_F_ONE_B = PipelineScheduleKind::ONE_F_ONE_B;
constexpr auto ZB_H1 = PipelineScheduleKind::ZB_H1;
constexpr auto ZB_V = PipelineScheduleKind::ZB_V;

const std::vector<PipelineTimes> TIMES = {
    {12, 12, 12, 0, {}}, {12, 24, 12, 0, {}}, {36, 24, 12, 0, {}}, {24, 36, 24, 0, {}}, {60, 48, 36, 0, {}}};

double group(const PipelineShape& shape) {  // the size of the first, which is the largest
  const int groups = std::max(1, shape.micro_batches / shape.stages);
  return (shape.micro_batches + groups - 1) / groups;
}

// (m + p - 1) (F + B) for whole backwards, B = I + W. With chunks, m v + p - 1 pairs of v-th parts if m >= p;
// otherwise every chunk waits for the last rank: p v + m - 1.
double makespan_by_formula(const PipelineShape& shape, const PipelineTimes& times) {
  const double p = shape.stages, m = shape.micro_batches, v = shape.virtual_stages;
  if (shape.kind == ZB_H1) {
    return (m + p - 1) * (times.forward + times.backward_input) +
           times.backward_weight * std::max(1.0, m - p + 1);
  }
  const double pairs = m >= p ? m * v + p - 1 : p * v + m - 1;
  return pairs * (times.forward + times.backward_input + times.backward_weight) / v;
}

TEST(PipelineCosts, HaveTheFormulasMakespan) {
  for (const PipelineShape& shape : every_pipeline_shape()) {
    if (shape.kind == ZB_V) continue;
    for (const PipelineTimes& times : TIMES) {
      const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape), times);
      ASSERT_EQ(timeline.makespan(), makespan_by_formula(shape, times)) << to_text(shape);
      const double work =
          shape.micro_batches * (times.forward + times.backward_input + times.backward_weight);
      for (const RankTimeline& rank : timeline.ranks) ASSERT_EQ(rank.work, work) << to_text(shape);
    }
  }
}

// The bubble is a quotient of whole numbers, so it is the formula's nearest double.
TEST(PipelineCosts, OfGPipeAnd1F1BAreThePapersBubble) {
  for (const PipelineShape& shape : every_pipeline_shape()) {
    if (shape.kind == ZB_H1 || shape.virtual_stages > 1) continue;
    const double p = shape.stages, m = shape.micro_batches;
    for (const PipelineTimes& times : TIMES)
      ASSERT_EQ(pipeline_timeline(pipeline_schedule(shape), times).bubble(), (p - 1) / (m + p - 1))
          << to_text(shape);
  }
}

// For every m from p on, not for the multiples of p alone, as Megatron's.
TEST(PipelineCosts, OfChunksDivideTheBubble) {
  int indivisible = 0;
  for (const PipelineShape& shape : every_pipeline_shape()) {
    const double p = shape.stages, m = shape.micro_batches, v = shape.virtual_stages;
    if (shape.kind != ONE_F_ONE_B || m < p) continue;
    for (const PipelineTimes& times : TIMES)
      ASSERT_EQ(pipeline_timeline(pipeline_schedule(shape), times).bubble(), (p - 1) / (v * m + p - 1))
          << to_text(shape);
    indivisible += shape.micro_batches % shape.stages == 0 ? 0 : 1;
  }
  EXPECT_GT(indivisible, 200);
}

// The paper's table 2: every rank is idle for (p - 1) (F + B - W), where 1F1B has (p - 1) (F + B + W). It
// holds for W of at most F and B, and enough micro-batches to delay a W.
TEST(PipelineCosts, OfZeroBubbleAreThePapersBubble) {
  for (const PipelineShape& shape : every_pipeline_shape()) {
    const double p = shape.stages, m = shape.micro_batches;
    if (shape.kind != ZB_H1 || m < p) continue;
    for (const PipelineTimes& times : TIMES) {
      const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape), times);
      const double bubble = (p - 1) * (times.forward + times.backward_input - times.backward_weight);
      for (const RankTimeline& rank : timeline.ranks)
        ASSERT_EQ(timeline.makespan() - rank.work, bubble) << to_text(shape);
    }
  }
}

// With F = I = W a rank waits until the first forward has come down the V: p - 1 chunks, half a forward each.
// With fewer than about 2p - 1 micro-batches also for those that come round it, but less than in an order
// that brings them round one behind another.
TEST(PipelineCosts, OfTheVAreTheWayDown) {
  for (const PipelineShape& shape : every_pipeline_shape()) {
    const int p = shape.stages, m = shape.micro_batches;
    if (shape.kind != ZB_V) continue;
    const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape), {12, 12, 12, 0, {}});
    const int behind_another = 2 * (2 * p - m - 1);
    for (const RankTimeline& rank : timeline.ranks) {
      ASSERT_EQ(rank.work, m * 36) << to_text(shape);
      const double idle_chunks = (timeline.makespan() - rank.work) / 6;
      if (behind_another <= p - 1)
        ASSERT_EQ(idle_chunks, p - 1) << to_text(shape);
      else
        ASSERT_LT(idle_chunks, behind_another) << to_text(shape);
    }
  }
}

// A gradient of parameters waits for the last turns of the ranks below alone.
TEST(PipelineCosts, OfTheVWithRecomputingKeepFewActivations) {
  for (const PipelineShape& shape : every_pipeline_shape(RecomputeMode::ALWAYS)) {
    if (shape.kind != ZB_V) continue;
    const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape));
    for (int rank = 0; rank < shape.stages; ++rank)
      ASSERT_LE(timeline.ranks[static_cast<std::size_t>(rank)].peak_activations, 2 * rank + 1)
          << to_text(shape);
  }
}

// Micro-batches between forward and backward, in chunks: Megatron's warm-up and one more.
int peak_by_formula(const PipelineShape& shape, int rank) {
  const int p = shape.stages, m = shape.micro_batches, v = shape.virtual_stages;
  if (shape.kind == GPIPE) return m;
  if (shape.kind == ZB_H1) return std::min(p, m);
  if (v == 1) return std::min(p - rank, m);
  return std::min(2 * (p - rank - 1) + (v - 1) * static_cast<int>(group(shape)) + 1, v * m);
}

TEST(PipelineCosts, HaveTheFormulasPeak) {
  for (const PipelineShape& shape : every_pipeline_shape()) {
    if (shape.kind == ZB_V) continue;
    const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape));
    for (int rank = 0; rank < shape.stages; ++rank) {
      const RankTimeline& mine = timeline.ranks[static_cast<std::size_t>(rank)];
      ASSERT_EQ(mine.peak_in_flight, peak_by_formula(shape, rank)) << to_text(shape) << ", rank " << rank;
      ASSERT_EQ(mine.peak_activations, mine.peak_in_flight);
    }
  }
}

// From 2p - 1 micro-batches on the V keeps 2p chunks; with fewer, no more than there are.
TEST(PipelineCosts, OfTheVKeepAsMuchAsTheFirstRankOf1F1B) {
  for (const PipelineShape& shape : every_pipeline_shape()) {
    const int p = shape.stages, m = shape.micro_batches;
    if (shape.kind != ZB_V) continue;
    for (const RankTimeline& rank : pipeline_timeline(pipeline_schedule(shape)).ranks) {
      if (m >= 2 * p - 1)
        ASSERT_EQ(rank.peak_in_flight, 2 * p) << to_text(shape);
      else
        ASSERT_LE(rank.peak_in_flight, std::min(2 * p, 2 * m)) << to_text(shape);
      ASSERT_EQ(rank.peak_activations, rank.peak_in_flight);
      ASSERT_EQ(rank.peak_size, rank.peak_in_flight);
    }
  }
}

// With unequal parts it keeps no more than half as much again. Nothing is faster than the way down and the
// work.
TEST(PipelineCosts, OfAComputedVAreBounded) {
  for (const PipelineShape& shape : computed_pipeline_shapes()) {
    const int p = shape.stages, m = shape.micro_batches;
    const PipelineWork& work = shape.work;
    const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape));
    double way = 0;
    for (int rank = 0; rank < p; ++rank) {
      const double size = work.size_of(rank) + work.size_of(2 * p - 1 - rank);
      const RankTimeline& mine = timeline.ranks[static_cast<std::size_t>(rank)];
      ASSERT_LE(mine.peak_size, std::max(work.part_sizes.empty() ? 2.0 * p : 3.0 * p, size) + 1e-6)
          << to_text(shape);
      ASSERT_NEAR(mine.work, m * 3 * size / 2, 1e-6) << to_text(shape);
      ASSERT_GE(timeline.makespan(), way + mine.work - 1e-6) << to_text(shape);
      way += work.size_of(rank) / 2;
    }
    ASSERT_GE(timeline.makespan(), least_makespan(shape) - 1e-6) << to_text(shape);
  }
}

// Megatron's warm-up where p divides m, and one more: the groups' size is p there.
TEST(PipelineCosts, HaveMegatronsPeakWhereItsOrderIs) {
  for (const PipelineShape& shape : every_pipeline_shape()) {
    const int p = shape.stages, m = shape.micro_batches, v = shape.virtual_stages;
    if (v == 1 || shape.kind == ZB_V || m % p != 0) continue;
    const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape));
    for (int rank = 0; rank < p; ++rank)
      ASSERT_EQ(timeline.ranks[static_cast<std::size_t>(rank)].peak_in_flight,
                std::min(2 * (p - rank - 1) + (v - 1) * p + 1, v * m))
          << to_text(shape);
  }
}

// Recomputing adds a forward for each micro-batch. The first of them needs no gradient, so a rank that would
// wait computes it meanwhile, and the idle time stays what it was.
TEST(PipelineCosts, OfRecomputingAreOneForwardEach) {
  for (const auto mode : {RecomputeMode::EXCEPT_LAST, RecomputeMode::ALWAYS}) {
    for (const PipelineShape& shape : every_pipeline_shape(mode)) {
      if (shape.kind == ZB_H1 || shape.virtual_stages > 1) continue;
      const int m = shape.micro_batches - (mode == RecomputeMode::ALWAYS ? 0 : 1);
      for (const PipelineTimes& times : TIMES) {
        const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape), times);
        const double never = makespan_by_formula(shape, times);
        for (const RankTimeline& rank : timeline.ranks)
          ASSERT_EQ(rank.work,
                    never -
                        (shape.stages - 1) * (times.forward + times.backward_input + times.backward_weight) +
                        m * times.forward);
        ASSERT_EQ(timeline.makespan(), never + m * times.forward) << to_text(shape);
      }
    }
  }
}

// ALWAYS: the activations of one micro-batch at a time, and with ZB_H1 of those whose W waits. EXCEPT_LAST:
// those of the last one as well while others are recomputed; GPIPE's last is the first to go.
TEST(PipelineCosts, OfRecomputingKeepInputsAlone) {
  for (const auto mode : {RecomputeMode::EXCEPT_LAST, RecomputeMode::ALWAYS}) {
    for (const PipelineShape& shape : every_pipeline_shape(mode)) {
      if (shape.kind == ZB_V) continue;
      const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape));
      for (int rank = 0; rank < shape.stages; ++rank) {
        const RankTimeline& mine = timeline.ranks[static_cast<std::size_t>(rank)];
        ASSERT_EQ(mine.peak_in_flight, peak_by_formula(shape, rank)) << to_text(shape);
        const int waiting = shape.kind == ZB_H1 ? std::min(rank + 1, shape.micro_batches) : 1;
        if (mode == RecomputeMode::ALWAYS) ASSERT_EQ(mine.peak_activations, waiting) << to_text(shape);
        if (mode == RecomputeMode::EXCEPT_LAST && shape.kind == GPIPE) ASSERT_EQ(mine.peak_activations, 1);
        ASSERT_LE(mine.peak_activations, waiting + shape.virtual_stages) << to_text(shape);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::pipeline_costs_test
