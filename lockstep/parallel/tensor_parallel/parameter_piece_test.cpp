#include "lockstep/parallel/tensor_parallel/parameter_piece.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::tensor_parallel {
namespace parameter_pieces {
namespace {

TEST(ParameterPiece, BlocksAreCutOneByOne) {
  EXPECT_EQ(partition_of({6, 2}, 0, {6}, 2, 3), (Partition{{6, 2}, 0, {{4, 2}}}));
  EXPECT_EQ(partition_of({6, 2}, 0, {2, 4}, 1, 2), (Partition{{6, 2}, 0, {{1, 1}, {4, 2}}}));
  EXPECT_EQ(partition_of({2, 8}, 1, {4, 2, 2}, 0, 1), (Partition{{2, 8}, 1, {{0, 4}, {4, 2}, {6, 2}}}));
}

TEST(ParameterPiece, VocabulariesNeedNotDivide) {
  EXPECT_EQ(vocab_range(10, 0, 4), (Stretch{0, 2}));
  EXPECT_EQ(vocab_range(10, 1, 4), (Stretch{2, 3}));
  EXPECT_EQ(vocab_range(10, 2, 4), (Stretch{5, 2}));
  EXPECT_EQ(vocab_range(10, 3, 4), (Stretch{7, 3}));
  for (const int ranks : {1, 2, 3, 4, 7}) {
    std::int64_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Stretch range = vocab_range(50257, rank, ranks);
      EXPECT_EQ(range.begin, next);
      EXPECT_LE(std::abs(range.size - 50257 / ranks), 1);
      next += range.size;
    }
    EXPECT_EQ(next, 50257);
  }
}

// Rank 1 of 2 holds column 1 and columns 4, 5 of 0 1 2 3 4 5 / 6 7 8 9 10 11.
TEST(ParameterPiece, APieceHasItsStretchesSideBySide) {
  const at::Tensor whole = at::arange(12).view({2, 6});
  const at::Tensor piece = piece_of(whole, partition_of({2, 6}, 1, {2, 4}, 1, 2));
  EXPECT_TRUE(piece.equal(at::tensor(std::vector<std::int64_t>{1, 4, 5, 7, 10, 11}, at::kLong).view({2, 3})));
}

TEST(ParameterPiece, IsDrawnAsPartOfTheWhole) {
  const InitMethod count = [](const at::Tensor& whole) {
    whole.copy_(at::arange(whole.numel()).view(whole.sizes()));
  };
  const at::Tensor piece = draw_piece(partition_of({4, 2}, 0, {4}, 1, 2), count);
  EXPECT_TRUE(piece.equal(at::tensor(std::vector<float>{4, 5, 6, 7}, at::kFloat).view({2, 2})));
  EXPECT_EQ(piece.storage().nbytes(), 4 * sizeof(float));  // the whole is gone
}

}  // namespace
}  // namespace parameter_pieces
}  // namespace lockstep::tensor_parallel
