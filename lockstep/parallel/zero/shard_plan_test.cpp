#include "lockstep/parallel/zero/shard_plan.h"

#include <gmock/gmock.h>

#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t PLAN_GRANULE = 100;

TEST(ShardPlan, CutsAtTheNearestGranule) {
  const std::vector<BucketParameter> parameters = {{1000}, {90}, {1110}};
  // halves of 1100 elements: the cut would be at element 10 of the last parameter
  EXPECT_EQ(to_string(shard_plan(parameters, 2, PLAN_GRANULE)),
            "rank 0: 4360 bytes: 0[0:1000] 1[0:90]\n"
            "rank 1: 4440 bytes: 2[0:1110]\n");
  // thirds of 733.3: at 700 of the first, at 376.7 of the last
  EXPECT_EQ(to_string(shard_plan(parameters, 3, PLAN_GRANULE)),
            "rank 0: 2800 bytes: 0[0:700]\n"
            "rank 1: 3160 bytes: 0[700:1000] 1[0:90] 2[0:400]\n"
            "rank 2: 2840 bytes: 2[400:1110]\n");
}

TEST(ShardPlan, AParameterSmallerThanAGranuleIsWhole) {
  const std::vector<BucketParameter> parameters = {{60}, {60}, {60}};
  EXPECT_EQ(to_string(shard_plan(parameters, 2, PLAN_GRANULE)),
            "rank 0: 240 bytes: 0[0:60]\n"
            "rank 1: 480 bytes: 1[0:60] 2[0:60]\n");
}

TEST(ShardPlan, CountsBytesNotElements) {
  const std::vector<BucketParameter> parameters = {{1000, DType::FLOAT64}, {4000, DType::FLOAT16}};
  EXPECT_THAT(shard_plan(parameters, 2, PLAN_GRANULE).bytes, ElementsAre(8000U, 8000U));
}

TEST(ShardPlan, SomeRanksHaveNothing) {
  EXPECT_EQ(to_string(shard_plan(std::vector<BucketParameter>{{3}}, 3, PLAN_GRANULE)),
            "rank 0: 0 bytes:\n"
            "rank 1: 12 bytes: 0[0:3]\n"
            "rank 2: 0 bytes:\n");
  EXPECT_TRUE(shard_plan({}, 2, PLAN_GRANULE).shards.empty());
}

// Every element has one owner, in order of ranks, and no share is off by a granule or more.
TEST(ShardPlan, CoversEverythingOnce) {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (std::size_t seed = 0; seed < 200; ++seed) {
      std::vector<BucketParameter> parameters;
      for (std::size_t i = 0; i < 1 + seed % 9; ++i)
        parameters.push_back(
            {(seed * 7919 + i * 104729) % 3001, i % 2 == 0 ? DType::FLOAT32 : DType::FLOAT64});
      const ShardPlan plan = shard_plan(parameters, ranks, PLAN_GRANULE);
      std::vector<std::size_t> covered(parameters.size());
      int last = 0;
      double total = 0;
      for (const ShardSpec& shard : plan.shards) {
        EXPECT_GT(shard.count, 0U);
        EXPECT_GE(shard.rank, last);
        EXPECT_EQ(shard.offset, covered[shard.parameter]);
        EXPECT_TRUE(shard.offset % PLAN_GRANULE == 0);
        covered[shard.parameter] += shard.count;
        last = shard.rank;
      }
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_EQ(covered[i], parameters[i].count);
        total += static_cast<double>(parameters[i].count * size_of(parameters[i].dtype));
      }
      for (const std::size_t bytes : plan.bytes)
        EXPECT_LE(std::abs(static_cast<double>(bytes) - total / ranks), 8.0 * PLAN_GRANULE)
            << to_string(plan);
    }
  }
}

TEST(ShardPlan, RefusesNonsense) {
  EXPECT_THROW(shard_plan({}, 0, PLAN_GRANULE), InvalidArgument);
  EXPECT_THROW(shard_plan({}, 1, 0), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
