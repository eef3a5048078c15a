#include "lockstep/schedules/pipeline_balance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/schedules/pipeline_timeline.h"

namespace lockstep::pipeline_balance_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using enum PipelineScheduleKind;

PipelineShape v_shape(int stages, int micro_batches) {
  return {.kind = ZB_V, .stages = stages, .micro_batches = micro_batches, .virtual_stages = 2};
}

std::vector<double> equal_layers(int count) {
  return std::vector<double>(static_cast<std::size_t>(count), 1.0);
}

double makespan_of(PipelineShape shape, const std::vector<double>& sizes) {
  shape.work.part_sizes = sizes;
  return pipeline_timeline(pipeline_schedule(shape)).makespan();
}

// Rank 1 waits for a part of one layer instead of two, half of a mean part's forward: 1/2 of 1/2.
TEST(PipelineBalance, HalvesTheBubbleOfAV) {
  for (const int m : {4, 8}) {
    const PipelineBalance balance = balance_pipeline(v_shape(2, m), equal_layers(8));
    EXPECT_THAT(balance.layers, ElementsAre(1, 2, 2, 3));
    EXPECT_THAT(balance.work.part_sizes, ElementsAre(1, 2, 2, 3));
    EXPECT_THAT(makespan_of(v_shape(2, m), balance.work.part_sizes), DoubleEq(3 * m + 0.25));
    EXPECT_THAT(makespan_of(v_shape(2, m), {}), DoubleEq(3 * m + 0.5));
  }
}

TEST(PipelineBalance, CutsIntoLikePartsWhereNothingElseIsShorter) {
  EXPECT_THAT(balance_pipeline({.kind = GPIPE, .stages = 3, .micro_batches = 4}, equal_layers(9)).layers,
              ElementsAre(3, 3, 3));
  EXPECT_THAT(balance_pipeline({.stages = 2, .micro_batches = 4}, {9, 1, 1, 1}).layers, ElementsAre(1, 3));
  EXPECT_THAT(balance_pipeline({.stages = 2, .micro_batches = 4}, {1, 2, 3, 4, 5, 6}).layers,
              ElementsAre(4, 2));
  EXPECT_THAT(balance_pipeline(v_shape(2, 4), equal_layers(4)).layers, ElementsAre(1, 1, 1, 1));
}

// The shortest step of all cuts, by trying them.
double best_by_trying(const PipelineShape& shape, const std::vector<double>& costs, std::vector<double> sizes,
                      std::size_t from) {
  const auto left = static_cast<std::size_t>(shape.parts()) - sizes.size();
  double size = 0, best = std::numeric_limits<double>::infinity();
  if (left == 1) {
    sizes.push_back(std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(from), costs.end(), 0.0));
    return makespan_of(shape, sizes);
  }
  sizes.push_back(0);
  for (std::size_t to = from + 1; to + left - 1 <= costs.size(); ++to) {
    size += costs[to - 1];
    sizes.back() = size;
    best = std::min(best, best_by_trying(shape, costs, sizes, to));
  }
  return best;
}

TEST(PipelineBalance, IsTheShortestOfAllCuts) {
  std::uint64_t seed = 1;
  for (const int m : {1, 2, 4, 7}) {
    for (PipelineShape shape :
         {v_shape(2, m), PipelineShape{.stages = 2, .micro_batches = m, .virtual_stages = 2},
          PipelineShape{.kind = GPIPE, .stages = 3, .micro_batches = m}}) {
      shape.work = {.forward = 1, .backward_input = 1.2, .backward_weight = 0.8};
      std::vector<double> costs = equal_layers(7);
      for (double& cost : costs)
        cost += static_cast<double>((seed = seed * 6364136223846793005ULL + 1) >> 61U);
      const PipelineBalance balance = balance_pipeline(shape, costs);
      ASSERT_EQ(std::accumulate(balance.layers.begin(), balance.layers.end(), std::int64_t{0}), 7);
      ASSERT_GT(*std::min_element(balance.layers.begin(), balance.layers.end()), 0);
      EXPECT_NEAR(makespan_of(shape, balance.work.part_sizes), best_by_trying(shape, costs, {}, 0), 1e-6)
          << to_text(shape);
    }
  }
}

// Unequal parts, unequal halves of the backward and few micro-batches: the order is computed. It is no
// shorter than can be, keeps at most 3p parts of mean size, and brings every micro-batch back.
TEST(PipelineBalance, OfLargerPipelinesIsNotSlowerThanLikeParts) {
  for (const int p : {2, 3, 4}) {
    for (const int m : {1, p, 2 * p, 5 * p}) {
      PipelineShape shape = v_shape(p, m);
      shape.work = {.forward = 1, .backward_input = 1.1, .backward_weight = 0.9};
      const double like = makespan_of(shape, {});
      shape.work = balance_pipeline(shape, equal_layers(6 * p)).work;
      const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(shape));
      EXPECT_LE(timeline.makespan(), like * (1 + 1e-9)) << to_text(shape);
      EXPECT_GE(timeline.makespan(), least_makespan(shape) * (1 - 1e-9)) << to_text(shape);
      for (const RankTimeline& rank : timeline.ranks) EXPECT_LE(rank.peak_size, 3 * p + 1e-9);
    }
  }
}

TEST(PipelineBalance, RefusesWhatCannotBeCut) {
  const auto refused = [](const PipelineShape& shape, const std::vector<double>& costs,
                          const std::string& text) {
    EXPECT_THAT([&] { balance_pipeline(shape, costs); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused(v_shape(2, 1), equal_layers(3), "3 layers for 4 parts; each part gets at least one");
  refused(v_shape(1, 1), {1, -1}, "the cost of layer 1 is -1");
  refused(v_shape(1, 1), {std::nan(""), 1}, "the cost of layer 0 is nan");
  refused(v_shape(1, 1), {0, 0}, "all layers cost 0");
  refused({.stages = 0}, {1}, "stages is 0");
}

}  // namespace
}  // namespace lockstep::pipeline_balance_test
