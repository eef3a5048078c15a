// The largest elements, against libtorch's topk: the same magnitudes, each place once and in order, and of
// equal ones the first.
#include "lockstep/parallel/gradients/hooks/largest_elements.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

void expect_largest(const at::Tensor& values, std::int64_t count) {
  const at::Tensor places = largest_places(values, count);
  ASSERT_EQ(places.sizes(), at::IntArrayRef({count}));
  ASSERT_EQ(places.scalar_type(), at::kLong);
  for (std::int64_t i = 1; i < count; ++i)
    ASSERT_LT(places[i - 1].item<std::int64_t>(), places[i].item<std::int64_t>());
  const at::Tensor chosen =
      std::get<0>(at::sort(values.index_select(0, places).abs(), 0, /*descending=*/true));
  const at::Tensor expected = std::get<0>(at::topk(values.abs(), count, 0, true, /*sorted=*/true));
  EXPECT_TRUE(chosen.allclose(expected, 0, 0, /*equal_nan=*/true)) << count << " of " << values.numel();
}

TEST(LargestElements, AreThoseOfTopk) {
  at::manual_seed(7);
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t size : {1, 2, 100, 5000}) {
      const at::Tensor values = at::randn({size}, type);
      for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, size / 3, size - 1, size})
        expect_largest(values, count);
      expect_largest(values * 1e-40, size / 2);        // denormal for float32
      expect_largest((values * 3).round(), size / 2);  // many are equal, and some zero, of both signs
    }
  }
}

TEST(LargestElements, NanIsLargerThanInfinityAndThatThanTheRest) {
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor values = at::tensor({1.0F, -inf, 3e38F, std::nanf(""), -2.0F, -std::nanf(""), inf});
  for (std::int64_t count = 0; count <= values.numel(); ++count) expect_largest(values, count);
  EXPECT_TRUE(largest_places(values, 2).equal(at::tensor({3, 5}, at::kLong)));
  EXPECT_TRUE(largest_places(values, 4).equal(at::tensor({1, 3, 5, 6}, at::kLong)));
}

TEST(LargestElements, OfEqualOnesAreTheFirst) {
  const at::Tensor zeros = at::zeros({10});
  EXPECT_TRUE(largest_places(zeros, 4).equal(at::arange(4)));
  const at::Tensor values = at::tensor({1.0, -5.0, 2.0, 5.0, 5.0, 2.0}, at::kDouble);
  EXPECT_TRUE(largest_places(values, 2).equal(at::tensor({1, 3}, at::kLong)));
  EXPECT_TRUE(largest_places(values, 4).equal(at::tensor({1, 2, 3, 4}, at::kLong)));
}

}  // namespace
}  // namespace lockstep
