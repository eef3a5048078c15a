#include "lockstep/parallel/zero/shard_layout.h"

#include <gmock/gmock.h>

#include "lockstep/optim/chunks.h"

namespace lockstep {
namespace {

constexpr std::size_t CHUNK = optim::CHUNK_ELEMENTS;

// Two parameters of float32 in one bucket, one of float64 in another; the first is cut after two chunks.
struct Example {
  const std::vector<BucketParameter> parameters = {{3 * CHUNK + 5}, {7, DType::FLOAT64}, {100}};
  const ShardPlan plan = {
      .ranks = 2,
      .shards = {{0, 0, 2 * CHUNK, 0}, {0, 2 * CHUNK, CHUNK + 5, 1}, {1, 0, 7, 1}, {2, 0, 100, 1}},
      .bytes = {}};
  const BucketPlan buckets = {
      {.dtype = DType::FLOAT32, .elements = 4 * CHUNK, .entries = {{0, 0}, {2, 3 * CHUNK + 16}}},
      {.dtype = DType::FLOAT64, .elements = 8, .entries = {{1, 0}}}};
};

TEST(ShardLayout, SaysWhereARanksPartsLie) {
  const Example e;
  const ShardLayout layout = shard_layout(e.parameters, e.plan, e.buckets, /*rank=*/1);
  EXPECT_EQ(layout.chunks, 4U + 1 + 1);
  EXPECT_EQ(layout.pieces[0], (ShardPiece{0, 4 * 2 * CHUNK, CHUNK + 5, 2, DType::FLOAT32}));
  EXPECT_EQ(layout.pieces[1], (ShardPiece{1, 0, 7, 4, DType::FLOAT64}));
  EXPECT_EQ(layout.pieces[2], (ShardPiece{0, 4 * (3 * CHUNK + 16), 100, 5, DType::FLOAT32}));
  EXPECT_EQ(shard_layout(e.parameters, e.plan, e.buckets, /*rank=*/0).pieces[1].count, 0U);
}

// Gaps between gradients lie within a range, so that a rank has one of each bucket.
TEST(ShardLayout, EachRankHasOneRangeOfABucket) {
  const Example e;
  const ShardLayout layout = shard_layout(e.parameters, e.plan, e.buckets, 0);
  EXPECT_EQ(layout.ranges[0], (std::vector<BucketRange>{{0, 2 * CHUNK}, {2 * CHUNK, CHUNK + 116}}));
  EXPECT_EQ(layout.ranges[1], (std::vector<BucketRange>{{0, 0}, {0, 7}}));
}

TEST(ShardLayout, ChunksAreNumberedOverAllParameters) {
  const Example e;
  const auto chunks = chunks_of(shard_layout(e.parameters, e.plan, e.buckets, 1), {true, false, true});
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[0].number, 2U);
  EXPECT_EQ(chunks[1].number, 3U);
  EXPECT_EQ(chunks[1].count, 5U);
  EXPECT_EQ(chunks[1].byte, 4 * 3 * CHUNK);
  EXPECT_EQ(chunks[2].number, 5U);
}

}  // namespace
}  // namespace lockstep
