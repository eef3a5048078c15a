#include "lockstep/schedules/joined_backwards.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <vector>

#include "lockstep/schedules/pipeline_timeline.h"
#include "testing/pipeline_shapes.h"

namespace lockstep::joined_backwards_test {
namespace {

using enum PipelineActionKind;

constexpr auto ZB_V = PipelineScheduleKind::ZB_V;

std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes = computed_pipeline_shapes();
  for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::ALWAYS})
    for (const PipelineShape& shape : every_pipeline_shape(mode)) shapes.push_back(shape);
  std::erase_if(shapes, [](const PipelineShape& shape) { return shape.stages > 4; });
  return shapes;
}

std::ptrdiff_t splits(const PipelineSchedule& schedule) {
  std::ptrdiff_t count = 0;
  for (const PipelineActions& row : schedule.ranks)
    count += std::count_if(row.begin(), row.end(),
                           [](const PipelineAction& action) { return action.kind == BACKWARD_INPUT; });
  return count;
}

// However many micro-batches there are, only those at the beginning and the end are waited for.
TEST(JoinedBackwards, SplitWhereAnotherRankWaits) {
  for (const int m : {8, 16, 32}) {
    const PipelineShape shape{.kind = ZB_V, .stages = 2, .micro_batches = m, .virtual_stages = 2};
    EXPECT_EQ(splits(split_schedule(shape)), 3 * m);
    EXPECT_EQ(splits(pipeline_schedule(shape)), 6);
  }
}

TEST(JoinedBackwards, TakeNoLonger) {
  for (const PipelineShape& shape : all_shapes()) {
    const PipelineTimeline split = pipeline_timeline(split_schedule(shape));
    const PipelineTimeline joined = pipeline_timeline(pipeline_schedule(shape));
    ASSERT_LE(joined.makespan(), split.makespan() * (1 + 1e-8)) << to_text(shape);
    for (std::size_t rank = 0; rank < split.ranks.size(); ++rank) {
      ASSERT_NEAR(joined.ranks[rank].work, split.ranks[rank].work, 1e-9 * split.makespan()) << to_text(shape);
      ASSERT_LE(joined.ranks[rank].peak_in_flight, split.ranks[rank].peak_in_flight) << to_text(shape);
      ASSERT_LE(joined.ranks[rank].peak_size, split.ranks[rank].peak_size + 1e-9) << to_text(shape);
    }
  }
}

// Nothing else changes: a joined backward is where its first half was, and its second half is gone.
TEST(JoinedBackwards, LeaveTheRestInItsOrder) {
  for (const PipelineShape& shape : all_shapes()) {
    const PipelineSchedule split = split_schedule(shape), schedule = pipeline_schedule(shape);
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      const PipelineActions& row = schedule.ranks[rank];
      PipelineActions expected;
      for (PipelineAction action : split.ranks[rank]) {
        const PipelineAction whole{
            .kind = BACKWARD, .micro_batch = action.micro_batch, .chunk = action.chunk};
        const bool is_joined = std::find(row.begin(), row.end(), whole) != row.end();
        if (is_joined && action.kind == BACKWARD_WEIGHT) continue;
        expected.push_back(is_joined && action.kind == BACKWARD_INPUT ? whole : action);
      }
      ASSERT_EQ(row, expected) << to_text(schedule);
    }
  }
}

// The micro-batches whose gradients of parameters a rank adds, in their order, for each of its chunks.
std::map<int, std::vector<int>> additions(const PipelineActions& row) {
  std::map<int, std::vector<int>> order;
  for (const PipelineAction& action : row)
    if (action.kind == BACKWARD || action.kind == BACKWARD_WEIGHT)
      order[action.chunk].push_back(action.micro_batch);
  return order;
}

// So the bits of a gradient do not depend on which backwards are whole.
TEST(JoinedBackwards, AddGradientsInTheOrderOfBefore) {
  for (const PipelineShape& shape : all_shapes()) {
    const PipelineSchedule split = split_schedule(shape), joined = pipeline_schedule(shape);
    for (std::size_t rank = 0; rank < split.ranks.size(); ++rank)
      ASSERT_EQ(additions(joined.ranks[rank]), additions(split.ranks[rank])) << to_text(joined);
  }
}

// Only ZB_V's: ZB_H1 has its gradients of parameters later by design.
TEST(JoinedBackwards, LeaveOtherSchedulesAlone) {
  for (const PipelineShape& shape : all_shapes())
    if (shape.kind != ZB_V) ASSERT_EQ(pipeline_schedule(shape).ranks, split_schedule(shape).ranks);
}

}  // namespace
}  // namespace lockstep::joined_backwards_test
