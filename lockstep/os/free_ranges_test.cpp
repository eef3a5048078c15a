#include "lockstep/os/free_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(FreeRanges, MergesNeighbours) {
  FreeRanges free;
  free.insert({100, 10});
  free.insert({120, 10});
  EXPECT_THAT(free.all(), ElementsAre(Pair(100, 10), Pair(120, 10)));
  const AddressRange whole = free.insert({110, 10});
  EXPECT_EQ(whole.begin, 100U);
  EXPECT_EQ(whole.bytes, 30U);
  EXPECT_THAT(free.all(), ElementsAre(Pair(100, 30)));
  EXPECT_EQ(free.total_bytes(), 30U);
}

TEST(FreeRanges, TakesFromTheLowestThatIsLongEnough) {
  FreeRanges free;
  free.insert({100, 40});
  free.insert({200, 60});
  free.insert({300, 500});
  EXPECT_EQ(free.take(50), 200U);  // in the length class of the first range, which is too short
  EXPECT_EQ(free.take(50), 300U);
  EXPECT_EQ(free.take(40), 100U);
  EXPECT_EQ(free.take(451), std::nullopt);
  EXPECT_THAT(free.all(), ElementsAre(Pair(250, 10), Pair(350, 450)));
  EXPECT_EQ(free.take(450), 350U);
  EXPECT_EQ(free.take(10), 250U);
  EXPECT_THAT(free.all(), IsEmpty());
  EXPECT_EQ(free.take(1), std::nullopt);
}

TEST(FreeRanges, KnowsWhatEndsWhereAndTheHighest) {
  FreeRanges free;
  free.insert({100, 10});
  free.insert({200, 10});
  EXPECT_EQ(free.ending_at(110).begin, 100U);
  EXPECT_EQ(free.ending_at(110).bytes, 10U);
  for (const std::uintptr_t nowhere : {50U, 100U, 109U, 111U, 200U})
    EXPECT_EQ(free.ending_at(nowhere).bytes, 0U);
  EXPECT_EQ(free.highest().begin, 200U);
  free.insert({400, 0});
  EXPECT_EQ(free.highest().end(), 210U);
}

// The reference is a list of bytes, each free or not: take() must find the first run of free bytes that is
// long enough.
TEST(FreeRanges, DoesWhatAListOfBytesDoes) {
  constexpr std::size_t BYTES = 600;
  std::mt19937 random(4);
  FreeRanges free;
  free.insert({1000, BYTES});
  std::vector<bool> is_free(BYTES, true);
  std::vector<AddressRange> taken;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      free.insert(taken.back());
      for (std::uintptr_t a = taken.back().begin; a < taken.back().end(); ++a) is_free[a - 1000] = true;
      taken.pop_back();
      continue;
    }
    const std::size_t bytes = 1 + random() % 70;
    std::size_t run = 0;
    std::size_t at = 0;
    for (; at < BYTES && run < bytes; ++at) run = is_free[at] ? run + 1 : 0;
    const auto place = free.take(bytes);
    ASSERT_EQ(place.has_value(), run == bytes);
    if (!place) continue;
    ASSERT_EQ(*place, 1000 + at - bytes);
    taken.push_back({*place, bytes});
    for (std::size_t b = at - bytes; b < at; ++b) is_free[b] = false;
  }
  for (const AddressRange& range : taken) free.insert(range);
  EXPECT_THAT(free.all(), ElementsAre(Pair(1000, BYTES)));
}

}  // namespace
}  // namespace lockstep
