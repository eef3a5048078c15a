#include "lockstep/data/sample_random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace lockstep {
namespace {

// SplitMix64 from state 0 begins with these (the test vector of its reference implementation).
TEST(SampleRandom, IsSplitMix64) {
  SampleRandom random(0, 0, 0);  // mix(0) is 0: the state is 0
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafU);
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4U);
  EXPECT_EQ(random.next(), 0x06c45d188009454fU);
}

TEST(SampleRandom, EachOfTheThreeNumbersCounts) {
  std::set<std::uint64_t> first;
  for (const std::uint64_t seed : {0, 1, 2, 3})
    for (const std::int64_t epoch : {0, 1, 2, 3})
      for (const std::int64_t index : {0, 1, 2, 3}) first.insert(SampleRandom(seed, epoch, index).next());
  EXPECT_EQ(first.size(), 64U);
}

// The chance that a correct generator misses a bound of five standard deviations in one of 9 counts is below
// 1e-5, and the seeds are fixed.
TEST(SampleRandom, BelowIsUniformOverIndices) {
  constexpr int DRAWS = 90'000;
  std::array<int, 9> counts{};
  for (int index = 0; index < DRAWS; ++index)
    ++counts.at(static_cast<std::size_t>(SampleRandom(1, 2, index).below(9)));
  for (const int count : counts) EXPECT_NEAR(count, DRAWS / 9, 5 * std::sqrt(DRAWS / 9.0 * 8 / 9));
}

TEST(SampleRandom, BelowCoversItsRangeAndNoMore) {
  SampleRandom random(5, 0, 0);
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, std::int64_t{1} << 62})
    for (int i = 0; i < 1000; ++i) {
      const std::int64_t value = random.below(count);
      ASSERT_TRUE(value >= 0 && value < count) << value;
    }
}

TEST(SampleRandom, UniformLiesInItsInterval) {
  double sum = 0;
  for (int index = 0; index < 10'000; ++index) {
    const double value = SampleRandom(3, 1, index).uniform();
    ASSERT_TRUE(value >= 0 && value < 1) << value;
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 5 * std::sqrt(1 / 12.0 / 10'000));
}

}  // namespace
}  // namespace lockstep
