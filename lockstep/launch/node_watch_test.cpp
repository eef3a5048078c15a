#include "lockstep/launch/node_watch.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::StartsWith;

TEST(NodeWatch, AFailureSurvivesTheStore) {
  for (const NodeFailure& failure : {NodeFailure{3, 137, "rank 4 failed first", 0}, NodeFailure{0, 1, "", 0},
                                     NodeFailure{1, 143, "the launcher was stopped by SIGTERM", 15}}) {
    const NodeFailure read = unpack_failure(pack_failure(failure));
    EXPECT_EQ(read.node, failure.node);
    EXPECT_EQ(read.exit_code, failure.exit_code);
    EXPECT_EQ(read.what, failure.what);
    EXPECT_EQ(read.signal, failure.signal);
  }
}

TEST(NodeWatch, AnythingElseInTheStoreIsAFailureToo) {
  for (const char* text : {"", "x", "1", "1 2", "1 2 3", "99999999999 1 0 "}) {
    EXPECT_EQ(unpack_failure(text).exit_code, 1) << text;
    EXPECT_FALSE(unpack_failure(text).what.empty()) << text;
  }
}

TEST(NodeWatch, LinesAreTakenWhenTheyAreWhole) {
  std::string text = "2 " + pack_failure({1, 7, "two words", 0});
  EXPECT_FALSE(take_watch_line(text));
  text += "\n3 \n";
  const auto first = take_watch_line(text);
  ASSERT_TRUE(first && first->failure);
  EXPECT_EQ(first->start, 2);
  EXPECT_EQ(first->failure->what, "two words");
  const auto second = take_watch_line(text);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->start, 3);
  EXPECT_FALSE(second->failure) << "all others have ended well";
  EXPECT_FALSE(take_watch_line(text));
}

TEST(NodeWatch, StartsShareNoKey) {
  EXPECT_NE(start_key("failed", 0), start_key("failed", 1));
  EXPECT_NE(start_key("ends", 1, 11), start_key("ends", 11, 1));
  EXPECT_THAT(gone_key(2, "abc"), StartsWith(node_key("gone", 2)));
}

}  // namespace
}  // namespace lockstep
