// When a stall is said, in which words, and when it is over.
#include "lockstep/named/stalls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::named {
namespace stalls_test {
namespace {

using std::chrono::seconds;

Time at(int second) { return Time(seconds(1000 + second)); }

Incomplete since(int second, const std::string& name) {
  return {.request = std::make_shared<Request>(Request{.name = name}),
          .present = {0, 2},
          .missing = {1},
          .since = at(second)};
}

TEST(StallWatch, WarnsAfterTheCheckTimeAndAgainAfterAsLong) {
  StallWatch watch(seconds(2), seconds(0));
  const std::vector<Incomplete> late = {since(0, "a"), since(3, "b")};
  EXPECT_EQ(watch.look(late, at(1)).warning, "");
  EXPECT_EQ(
      watch.look(late, at(2)).warning.substr(0, 97),
      "stalled for 2 s: allreduce \"a\" was submitted by ranks 0, 2 and is missing from rank 1. Every rank");
  EXPECT_EQ(watch.look(late, at(3)).warning, "");
  EXPECT_THAT(watch.look(late, at(5)).warning, ::testing::HasSubstr("; allreduce \"b\" was"));
  EXPECT_FALSE(watch.look(late, at(900)).is_over);
}

TEST(StallWatch, IsOverAfterTheShutdownTime) {
  StallWatch watch(seconds(2), seconds(5));
  EXPECT_FALSE(watch.look({since(0, "a")}, at(4)).is_over);
  EXPECT_TRUE(watch.look({since(0, "a")}, at(5)).is_over);
  EXPECT_FALSE(watch.look({}, at(6)).is_over);
}

TEST(StallWatch, APauseDoesNotCount) {
  StallWatch watch(seconds(2), seconds(5));
  const std::vector<Incomplete> late = {since(0, "a")};
  const Stalls behind_it = watch.look(late, at(100), /*running_since=*/at(99));
  EXPECT_EQ(behind_it.warning, "");
  EXPECT_FALSE(behind_it.is_over);
  EXPECT_THAT(watch.look(late, at(102), at(99)).warning, ::testing::StartsWith("stalled for 3 s: "));
  EXPECT_TRUE(watch.look(late, at(104), at(99)).is_over);
}

TEST(StallWatch, OfNothingNeverLooks) {
  EXPECT_EQ(StallWatch(seconds(0), seconds(0)).patience(), std::nullopt);
  EXPECT_EQ(StallWatch(seconds(0), seconds(0)).look({since(0, "a")}, at(500)).warning, "");
  EXPECT_EQ(StallWatch(seconds(1), seconds(0)).patience(), std::chrono::milliseconds(100));
}

TEST(StallTexts, NameTenAtMost) {
  const std::vector<Incomplete> many(12, since(0, "x"));
  EXPECT_THAT(describe(many), ::testing::EndsWith("; and 2 more"));
}

}  // namespace
}  // namespace stalls_test
}  // namespace lockstep::named
