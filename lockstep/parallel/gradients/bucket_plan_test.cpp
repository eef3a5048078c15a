#include "lockstep/parallel/gradients/bucket_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Parameters = std::vector<BucketParameter>;

TEST(BucketPlan, FillsBucketsInTheOrderOfArrivalAndClosesThemAtTheCap) {
  const Parameters parameters = {{16}, {16}, {16}, {16}, {16}};  // 64 bytes each
  EXPECT_EQ(to_string(bucket_plan(parameters, reverse_order(5), {.first_bytes = 64, .bytes = 128})),
            "#0 float32 64 bytes: 4\n"
            "#1 float32 128 bytes: 3 2\n"
            "#2 float32 128 bytes: 1 0\n");
}

TEST(BucketPlan, ExceedsTheCapByLessThanOneGradient) {
  const Parameters parameters = {{1000}, {16}, {16}};
  EXPECT_EQ(to_string(bucket_plan(parameters, reverse_order(3), {.first_bytes = 256, .bytes = 256})),
            "#0 float32 4128 bytes: 2 1 0\n");
}

TEST(BucketPlan, StartsEveryGradientAtACacheLine) {
  const Parameters parameters = {{3, DType::FLOAT32}, {1, DType::FLOAT32}, {5, DType::FLOAT32}};
  const std::vector<std::size_t> order = {0, 1, 2};
  const BucketPlan plan = bucket_plan(parameters, order, {});
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].entries, (std::vector<BucketEntry>{{0, 0}, {1, 16}, {2, 32}}));
  EXPECT_EQ(plan[0].elements, 37u);
}

TEST(BucketPlan, KeepsDtypesApartAndNumbersBucketsByTheirLastArrival) {
  const Parameters parameters = {
      {16, DType::FLOAT64}, {16, DType::FLOAT32}, {16, DType::FLOAT64}, {64, DType::FLOAT32}};
  const std::vector<std::size_t> order = {0, 1, 2, 3};
  EXPECT_EQ(to_string(bucket_plan(parameters, order, {.first_bytes = 64, .bytes = 1024})),
            "#0 float64 128 bytes: 0\n"
            "#1 float32 64 bytes: 1\n"
            "#2 float64 128 bytes: 2\n"
            "#3 float32 256 bytes: 3\n");
  EXPECT_EQ(to_string(bucket_plan(parameters, order, {.first_bytes = 1024, .bytes = 1024})),
            "#0 float64 256 bytes: 0 2\n"
            "#1 float32 320 bytes: 1 3\n");
}

TEST(BucketPlan, HoldsParametersWithoutElements) {
  const Parameters parameters = {{0}, {4}, {0}};
  const BucketPlan plan = bucket_plan(parameters, reverse_order(3), {});
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].elements, 16u);
  EXPECT_TRUE(bucket_plan({}, {}, {}).empty());
}

TEST(BucketPlan, KeepsOptimiserGroupsApart) {
  const Parameters parameters = {{16}, {16, DType::FLOAT32, 1}, {16}, {16, DType::FLOAT32, 1}, {16}};
  EXPECT_EQ(to_string(bucket_plan(parameters, reverse_order(5), {.first_bytes = 64, .bytes = 1024})),
            "#0 float32 64 bytes: 4\n"
            "#1 float32 64 bytes, group 1: 3\n"
            "#2 float32 64 bytes, group 1: 1\n"
            "#3 float32 128 bytes: 2 0\n");
}

TEST(BucketPlan, PadsABucketUntilItsShardsAreWholeCacheLines) {
  const Parameters parameters = {{20}, {16, DType::FLOAT64}, {100}};  // elements of 4, 8 and 4 bytes
  EXPECT_EQ(to_string(bucket_plan(parameters, reverse_order(3), {}, /*shards=*/2)),
            "#0 float64 128 bytes, 2 shards of 64: 1\n"
            "#1 float32 640 bytes, 2 shards of 320: 2 0\n");  // 112 + 20 elements are 528 bytes
  EXPECT_EQ(to_string(bucket_plan(parameters, reverse_order(3), {}, /*shards=*/3)),
            "#0 float64 192 bytes, 3 shards of 64: 1\n"
            "#1 float32 576 bytes, 3 shards of 192: 2 0\n");
  EXPECT_EQ(bucket_plan(parameters, reverse_order(3), {}, 1), bucket_plan(parameters, reverse_order(3), {}));
}

TEST(BucketPlan, GivesEachRankItsShard) {
  const BucketPlan plan = bucket_plan(Parameters{{20}, {100}}, reverse_order(2), {}, /*shards=*/3);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(shard_of(plan[0], 0), (BucketRange{.offset = 0, .count = 48}));
  EXPECT_EQ(shard_of(plan[0], 1), (BucketRange{.offset = 48, .count = 48}));
  EXPECT_EQ(shard_of(plan[0], 2), (BucketRange{.offset = 96, .count = 48}));
  EXPECT_THROW(shard_of(plan[0], 3), InvalidArgument);
  const BucketPlan whole = bucket_plan(Parameters{{20}, {100}}, reverse_order(2), {});
  EXPECT_EQ(shard_of(whole[0], 0), (BucketRange{.offset = 0, .count = 132}));
}

TEST(ArrivalOrder, PutsWhatDidNotArriveLast) {
  EXPECT_EQ(arrival_order(std::vector<std::size_t>{}, 3), reverse_order(3));
  EXPECT_EQ(arrival_order(std::vector<std::size_t>{1, 3}, 5), (std::vector<std::size_t>{1, 3, 4, 2, 0}));
}

TEST(ArrivalOrder, CountsWhatArrivesRepeatedlyWhereItDoesLast) {
  EXPECT_EQ(arrival_order(std::vector<std::size_t>{2, 1, 2, 0, 1}, 4),
            (std::vector<std::size_t>{2, 0, 1, 3}));
}

TEST(BucketPlan, RefusesAnOrderThatIsNoPermutation) {
  const Parameters parameters = {{1}, {1}};
  using Order = std::vector<std::size_t>;
  EXPECT_THROW(bucket_plan(parameters, Order{0, 0}, {}), InvalidArgument);
  EXPECT_THROW(bucket_plan(parameters, Order{0, 2}, {}), InvalidArgument);
  EXPECT_THROW(bucket_plan(parameters, Order{0}, {}), InvalidArgument);
  EXPECT_THROW(bucket_plan(parameters, Order{0, 1}, {.first_bytes = 0, .bytes = 1}), InvalidArgument);
  EXPECT_THROW(bucket_plan(parameters, Order{0, 1}, {}, /*shards=*/0), InvalidArgument);
}

// For random models: every gradient appears once, none overlap, every bucket but the last of its kind has
// reached its cap, and would not have without its last gradient. Shards are whole cache lines, and padding is
// less than a line of each.
TEST(BucketPlan, HoldsForRandomModels) {
  std::mt19937 random(7);
  const std::array<DType, 3> dtypes = {DType::FLOAT32, DType::FLOAT64, DType::BFLOAT16};
  for (int round = 0; round < 300; ++round) {
    const std::size_t groups = 1 + random() % 3;
    const std::size_t shards = 1 + random() % 4;
    Parameters parameters(random() % 40);
    for (auto& parameter : parameters) parameter = {random() % 3000, dtypes[random() % 3], random() % groups};
    auto order = reverse_order(parameters.size());
    std::shuffle(order.begin(), order.end(), random);
    const BucketCaps caps = {.first_bytes = 1 + random() % 4000, .bytes = 1 + random() % 20000};
    std::vector<int> appearances(parameters.size(), 0);
    std::map<std::pair<std::size_t, DType>, int> buckets;
    std::map<std::pair<std::size_t, DType>, bool> ended;
    for (const BucketSpec& bucket : bucket_plan(parameters, order, caps, shards)) {
      const std::pair kind(bucket.group, bucket.dtype);
      const std::size_t cap = buckets[kind]++ == 0 ? caps.first_bytes : caps.bytes;
      const std::size_t line = 64 / size_of(bucket.dtype);
      std::size_t end = 0;
      for (const BucketEntry& entry : bucket.entries) {
        EXPECT_LT(end * size_of(bucket.dtype), cap);
        EXPECT_GE(entry.offset, end);
        EXPECT_EQ(entry.offset % line, 0u);
        EXPECT_EQ(parameters[entry.parameter].dtype, bucket.dtype);
        EXPECT_EQ(parameters[entry.parameter].group, bucket.group);
        end = entry.offset + parameters[entry.parameter].count;
        ++appearances[entry.parameter];
      }
      if (shards == 1) EXPECT_EQ(bucket.elements, end);
      if (shards > 1) EXPECT_EQ(bucket.elements % (shards * line), 0u);
      EXPECT_GE(bucket.elements, end);
      EXPECT_LT(bucket.elements, end + shards * line);
      EXPECT_FALSE(ended[kind]) << "a bucket below its cap was not the last of its kind";
      ended[kind] = end * size_of(bucket.dtype) < cap;
    }
    EXPECT_EQ(appearances, std::vector<int>(parameters.size(), 1));
  }
}

}  // namespace
}  // namespace lockstep
