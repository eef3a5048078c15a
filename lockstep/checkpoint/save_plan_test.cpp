#include "lockstep/checkpoint/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/formats/checkpoint_index.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Shards = std::vector<std::vector<DeclaredShard>>;

TEST(SavePlan, CutsOneTensorBetweenRows) {
  EXPECT_EQ(to_text(save_plan({{"model.fc.weight", "F32", {6, 4}}}, {{}, {}})),
            "rank 0, 48 bytes\n"
            "  model.fc.weight [0, 0] + [3, 4]\n"
            "rank 1, 48 bytes\n"
            "  model.fc.weight [3, 0] + [3, 4]\n");
}

TEST(SavePlan, SpreadsTensorsByBytesInTheOrderOfTheirNames) {
  EXPECT_EQ(
      to_text(save_plan({{"c", "I64", {}}, {"a", "F32", {10}}, {"b", "F32", {1, 8}}, {"d", "U8", {0, 3}}},
                        {{}, {}, {}})),
      "rank 0, 28 bytes\n"
      "  a [0] + [7]\n"
      "rank 1, 28 bytes\n"
      "  a [7] + [3]\n"
      "  b [0, 0] + [1, 4]\n"
      "rank 2, 24 bytes\n"
      "  b [0, 4] + [1, 4]\n"
      "  c [] + []\n");
}

TEST(SavePlan, LetsTheLeastLoadedHolderWriteAShard) {
  const DeclaredTensor weight = {"w", "F32", {4, 2}};
  const DeclaredShard top = {weight, {{0, 0}, {2, 2}}};
  const DeclaredShard bottom = {weight, {{2, 0}, {2, 2}}};
  const DeclaredShard own = {{"random@0", "U8", {40}}, {{0}, {40}}};
  EXPECT_EQ(to_text(save_plan({{"z", "U8", {8}}}, {{own, top}, {bottom}, {top}, {bottom}})),
            "rank 0, 40 bytes\n"
            "  random@0 [0] + [40]\n"
            "rank 1, 20 bytes\n"
            "  w [2, 0] + [2, 2]\n"
            "  z [0] + [4]\n"
            "rank 2, 20 bytes\n"
            "  w [0, 0] + [2, 2]\n"
            "  z [4] + [4]\n"
            "rank 3, 0 bytes\n");
}

TEST(SavePlan, CutsLargePieces) {
  EXPECT_EQ(to_text(save_plan({{"w", "F32", {5, 2}}}, {{}}, /*most_piece_bytes=*/20)),
            "rank 0, 40 bytes\n"
            "  w [0, 0] + [2, 2]\n"
            "  w [2, 0] + [2, 2]\n"
            "  w [4, 0] + [1, 2]\n");
}

TEST(SavePlan, RefusesWhatDoesNotMakeUpATensor) {
  const DeclaredTensor weight = {"w", "F32", {4, 2}};
  const DeclaredShard top = {weight, {{0, 0}, {2, 2}}};
  EXPECT_THAT([&] { save_plan({}, {{top}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"w\" [4, 2]")));
  EXPECT_THAT(
      [&] {
        save_plan({}, {{top}, {{weight, {{1, 0}, {3, 2}}}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("overlap")));
  EXPECT_THAT(
      [&] {
        save_plan({}, {{top}, {{{"w", "F64", {4, 2}}, {{2, 0}, {2, 2}}}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("F64")));
  EXPECT_THAT(
      [&] {
        save_plan({{"a", "F32", {1}}, {"a", "F32", {1}}}, {{}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("occurs twice")));
}

// Every element of every tensor once, and no rank more than its share by more than one row of each tensor it
// cuts.
TEST(SavePlan, CoversEverythingOnceAndEvenly) {
  const std::vector<DeclaredTensor> tensors = {{"a", "F32", {7, 3, 5}}, {"b", "BF16", {1, 1, 33}},
                                               {"c", "F64", {}},        {"d", "U8", {0}},
                                               {"e", "F32", {64, 9}},   {"f", "I16", {1000}}};
  std::uint64_t total = 0;
  for (const DeclaredTensor& tensor : tensors)
    total +=
        static_cast<std::uint64_t>(elements_of(box_of(tensor.shape))) * checkpoint_dtype_size(tensor.dtype);
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    const SavePlan plan = save_plan(tensors, Shards(ranks), /*most_piece_bytes=*/256);
    std::map<std::string, std::vector<CheckpointPiece>> pieces;
    for (const auto& of_rank : plan.of_rank) {
      std::uint64_t bytes = 0;
      for (const PlannedPiece& piece : of_rank) {
        bytes += piece.bytes;
        pieces[piece.tensor].push_back(
            {.key = {}, .offsets = piece.box.offsets, .sizes = piece.box.sizes, .xxh128 = {}});
      }
      EXPECT_LE(bytes, (total + ranks - 1) / ranks + 60);  // a row of "a" has 60 bytes, the longest
    }
    for (const DeclaredTensor& tensor : tensors)
      EXPECT_EQ(defect_of_pieces(tensor.shape, pieces[tensor.name]), "")
          << tensor.name << ", " << ranks << " ranks";
  }
}

// The numbers of a box's elements in a contiguous tensor.
void append_elements(const Box& box, const std::vector<std::int64_t>& shape,
                     std::vector<std::int64_t>& elements, std::size_t dim = 0, std::int64_t outside = 0) {
  if (dim == shape.size()) return elements.push_back(outside);
  for (std::int64_t i = box.offsets[dim]; i < box.offsets[dim] + box.sizes[dim]; ++i)
    append_elements(box, shape, elements, dim + 1, outside * shape[dim] + i);
}

// Every range of every shape: its boxes, in order, hold its elements, and there are not too many.
TEST(BoxesOfRange, AreTheRangeInOrder) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{7}, {3, 5}, {1, 6}, {3, 4, 5}, {2, 3, 1, 4}}) {
    const std::int64_t all = elements_of(box_of(shape));
    for (std::int64_t first = 0; first < all; ++first)
      for (std::int64_t count = 0; first + count <= all; ++count) {
        const std::vector<Box> boxes = boxes_of_range(shape, first, count);
        EXPECT_LE(boxes.size(), std::max<std::size_t>(1, 2 * shape.size() - 1));
        std::vector<std::int64_t> elements;
        for (const Box& box : boxes) append_elements(box, shape, elements);
        std::vector<std::int64_t> expected(static_cast<std::size_t>(count));
        std::iota(expected.begin(), expected.end(), first);
        ASSERT_EQ(elements, expected) << first << " + " << count;
      }
  }
}

TEST(BoxesOfRange, ANumberIsABox) {
  EXPECT_EQ(boxes_of_range({}, 0, 1), std::vector<Box>{Box{}});
  EXPECT_TRUE(boxes_of_range({}, 0, 0).empty());
  EXPECT_TRUE(boxes_of_range({3, 4}, 5, 0).empty());
}

}  // namespace
}  // namespace lockstep
