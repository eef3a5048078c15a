// In which buckets gradients travel to their owners, and where a rank's parts stay.
#include "lockstep/parallel/zero/scatter_layout.h"

#include <gmock/gmock.h>

#include "lockstep/optim/chunks.h"

namespace lockstep {
namespace {

constexpr std::size_t GRANULE = optim::CHUNK_ELEMENTS;

TEST(ScatterLayout, ABucketHasItsGradientsInTheOrderOfParameters) {
  const std::vector<BucketParameter> parameters = {
      {10, DType::FLOAT32}, {20, DType::FLOAT32}, {30, DType::FLOAT64}, {40, DType::FLOAT32}};
  const std::vector<std::size_t> order = {3, 0, 2, 1};
  const BucketPlan buckets = scatter_buckets(parameters, order, {.first_bytes = 1000, .bytes = 1000});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].dtype, DType::FLOAT64);
  EXPECT_EQ(buckets[1].entries, (std::vector<BucketEntry>{{0, 0}, {1, 16}, {3, 48}}));
  EXPECT_EQ(buckets[1].elements, 48U + 40);
  EXPECT_FALSE(travels_alone(buckets[1]));
}

TEST(ScatterLayout, AGradientOfABucketsSizeTravelsAlone) {
  const std::vector<BucketParameter> parameters = {
      {10, DType::FLOAT32}, {250, DType::FLOAT32}, {20, DType::FLOAT32}};
  const BucketPlan buckets =
      scatter_buckets(parameters, reverse_order(3), {.first_bytes = 1000, .bytes = 1000});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_TRUE(travels_alone(buckets[0]));
  EXPECT_EQ(buckets[0].entries, (std::vector<BucketEntry>{{1, 0}}));
  EXPECT_FALSE(travels_alone(buckets[1]));
  EXPECT_EQ(buckets[1].entries, (std::vector<BucketEntry>{{0, 0}, {2, 16}}));
}

// What other ranks have takes no room.
TEST(ScatterLayout, AShareIsARanksPartsEndToEnd) {
  const std::vector<BucketParameter> parameters = {
      {3 * GRANULE, DType::FLOAT32}, {7, DType::FLOAT64}, {100, DType::FLOAT32}};
  const ShardPlan plan = {
      .ranks = 2,
      .shards = {{0, 0, 2 * GRANULE, 0}, {0, 2 * GRANULE, GRANULE, 1}, {1, 0, 7, 1}, {2, 0, 100, 1}},
      .bytes = {}};
  const GradientShare share = gradient_share(parameters, plan, /*rank=*/1);
  EXPECT_EQ(share.layout.pieces[0], (ShardPiece{0, 0, GRANULE, 2, DType::FLOAT32}));
  EXPECT_EQ(share.layout.pieces[1], (ShardPiece{1, 0, 7, 3, DType::FLOAT64}));
  EXPECT_EQ(share.layout.pieces[2], (ShardPiece{0, 4 * GRANULE, 100, 4, DType::FLOAT32}));
  EXPECT_EQ(share.elements, (std::vector<std::size_t>{GRANULE + 100, 7}));
  EXPECT_EQ(share.layout.chunks, 5U);
  EXPECT_EQ(gradient_share(parameters, plan, 0).elements, (std::vector<std::size_t>{2 * GRANULE, 0}));
}

}  // namespace
}  // namespace lockstep
