// Factors, averages of integers, and Adasum's formula.
#include "lockstep/named/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::named {
namespace scaling_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

TEST(NamedScale, MultipliesEachType) {
  std::vector<float> x = {1, -3};
  scale(x.data(), 2, DType::FLOAT32, 0.5);
  EXPECT_THAT(x, ElementsAre(0.5F, -1.5F));
  std::vector<std::int32_t> n = {7, -7};
  scale(n.data(), 2, DType::INT32, 0.5);
  EXPECT_THAT(n, ElementsAre(3, -3));
  std::vector<std::uint16_t> half = {0x3c00};  // 1
  scale(half.data(), 1, DType::FLOAT16, 2);
  EXPECT_EQ(half[0], 0x4000);                 // 2
  scale(half.data(), 1, DType::BFLOAT16, 2);  // 2.0 in bfloat16 has the same bits
  EXPECT_EQ(half[0], 0x4080);
  bool flag = true;
  EXPECT_THROW(scale(&flag, 1, DType::BOOL, 2), InvalidArgument);
}

TEST(NamedDivide, RoundsTowardsZero) {
  std::vector<std::int8_t> n = {7, -7, 120};
  divide(n.data(), 3, DType::INT8, 3);
  EXPECT_THAT(n, ElementsAre(2, -2, 40));
  std::vector<std::uint64_t> large = {~std::uint64_t{0}};
  divide(large.data(), 1, DType::UINT64, 1);
  EXPECT_EQ(large[0], ~std::uint64_t{0});
}

std::vector<double> adasum(std::vector<double> a, const std::vector<double>& b) {
  adasum_pair(a.data(), b.data(), a.size(), DType::FLOAT64);
  return a;
}

TEST(Adasum, AddsOrthogonalAndAveragesEqualVectors) {
  EXPECT_THAT(adasum({1, 0, 0}, {0, 2, 5}), ElementsAre(1, 2, 5));
  EXPECT_THAT(adasum({3, -4}, {3, -4}), ElementsAre(3, -4));
  EXPECT_THAT(adasum({2, 2}, {4, 4}), ElementsAre(3, 3));  // 2 (1 - 16/16) + 4 (1 - 16/64)
  EXPECT_THAT(adasum({0, 0}, {4, 1}), ElementsAre(4, 1));
}

TEST(Adasum, IsStableForSmallAndLargeNumbers) {
  for (const float size : {1e-20F, 1.0F, 1e18F}) {
    std::vector<float> a = {size, 0}, b = {size, 0};
    adasum_pair(a.data(), b.data(), 2, DType::FLOAT32);
    EXPECT_THAT(a[0], FloatEq(size)) << size;
  }
}

}  // namespace
}  // namespace scaling_test
}  // namespace lockstep::named
