// The reference itself against numbers worked out by hand.
#include "testing/reference.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::reference {
namespace {

TEST(Reference, SixteenBitValuesAreWhatTheirDefinitionsSay) {
  EXPECT_EQ(value_of(Float16{0x3c00}), 1.0);
  EXPECT_EQ(value_of(Float16{0x7bff}), 65504.0);
  EXPECT_EQ(value_of(Float16{0x0001}), std::ldexp(1, -24));
  EXPECT_EQ(value_of(Float16{0xfc00}), -INFINITY);
  EXPECT_EQ(value_of(BFloat16{0x3f80}), 1.0);
  EXPECT_EQ(value_of(BFloat16{0xc049}), -3.140625);
  EXPECT_TRUE(std::isnan(value_of(BFloat16{0x7fc0})));
}

TEST(Reference, RoundsToTheNearestAndToEven) {
  EXPECT_EQ(nearest<Float16>(2049).bits, nearest<Float16>(2048).bits);
  EXPECT_EQ(nearest<Float16>(2051).bits, nearest<Float16>(2052).bits);
  EXPECT_EQ(value_of(nearest<Float16>(2049.001)), 2050);
  EXPECT_EQ(nearest<Float16>(65519.999).bits, 0x7bff);
  EXPECT_EQ(nearest<Float16>(65520).bits, 0x7c00);
  EXPECT_EQ(nearest<Float16>(-std::ldexp(1, -25)).bits, 0x8000);
  EXPECT_EQ(nearest<Float16>(-1.5 * std::ldexp(1, -25)).bits, 0x8001);
  EXPECT_EQ(value_of(nearest<BFloat16>(257)), 256);
  EXPECT_EQ(value_of(nearest<BFloat16>(259)), 260);
}

TEST(Reference, EverySixteenBitValueIsNearestToItself) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    const BFloat16 brain{static_cast<std::uint16_t>(bits)};
    ASSERT_TRUE(same(nearest<Float16>(value_of(half)), half)) << bits;
    ASSERT_TRUE(same(nearest<BFloat16>(value_of(brain)), brain)) << bits;
  }
}

TEST(Reference, CombinesNeighboursFirst) {
  const float big = 1e8F;
  EXPECT_EQ(combine<float>(ReduceOp::SUM, {big, 1, -big}), 0);  // (1e8 + 1) - 1e8
  EXPECT_EQ(combine<float>(ReduceOp::SUM, {big, -big, 1}), 1);
  EXPECT_EQ(combine<float>(ReduceOp::SUM, {big, 1, -big, 1}), 0);  // (1e8 + 1) + (-1e8 + 1)
  EXPECT_EQ(combine<float>(ReduceOp::SUM, {1, big, 1, -big}), 0);
  EXPECT_EQ(combine<float>(ReduceOp::SUM, {1, 1, big, -big}), 2);
  EXPECT_EQ(combine<std::int8_t>(ReduceOp::SUM, {100, 100}), -56);
  EXPECT_EQ(combine<std::uint8_t>(ReduceOp::PRODUCT, {200, 100}), 32);
}

TEST(Reference, NamesFifteenElementTypes) {
  std::set<DType> seen;
  for_each_dtype([&]<typename T>() { seen.insert(dtype_of<T>()); });
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(DTYPE_COUNT));
}

TEST(Reference, SamplesOfDifferentRanksAndPlacesDiffer) {
  EXPECT_NE(sample<float>(0, 0), sample<float>(1, 0));
  EXPECT_NE(sample<float>(0, 0), sample<float>(0, 1));
  EXPECT_NE(sample<float>(0, 0, 1), sample<float>(0, 0, 2));
}

}  // namespace
}  // namespace lockstep::reference
