#include "lockstep/parallel/zero/sharded_state.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace lockstep::zero {
namespace {

// Every stretch of every shape: its boxes, in order, hold its elements, and there are not too many.
void expect_boxes(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  const at::Tensor whole = at::arange(elements).reshape(shape);
  for (std::int64_t begin = 0; begin < elements; ++begin) {
    for (std::int64_t count = 1; begin + count <= elements; ++count) {
      const std::vector<Box> boxes = boxes_of(shape, begin, count);
      EXPECT_LE(boxes.size(), std::max<std::size_t>(1, 2 * shape.size() - 1));
      std::int64_t next = begin;
      for (const Box& box : boxes) {
        at::Tensor part = whole;
        for (std::size_t d = 0; d < shape.size(); ++d)
          part = part.narrow(static_cast<std::int64_t>(d), box.offsets[d], box.sizes[d]);
        EXPECT_EQ(box.begin, next - begin);
        EXPECT_TRUE(part.flatten().equal(at::arange(next, next + part.numel()))) << begin << ' ' << count;
        next += part.numel();
      }
      EXPECT_EQ(next, begin + count);
    }
  }
}

TEST(ShardedState, AStretchIsAFewBoxes) {
  expect_boxes({7});
  expect_boxes({3, 5});
  expect_boxes({1, 6});
  expect_boxes({4, 3, 2});
  expect_boxes({2, 3, 1, 4});
}

TEST(ShardedState, ANumberIsABox) {
  EXPECT_EQ(boxes_of({}, 0, 1), std::vector<Box>{Box{}});
  EXPECT_TRUE(boxes_of({}, 0, 0).empty());
  EXPECT_TRUE(boxes_of({3, 4}, 5, 0).empty());
}

}  // namespace
}  // namespace lockstep::zero
