#include "lockstep/comm/backends/shared/own_presence.h"

#include <gtest/gtest.h>

namespace lockstep::shared {
namespace {

using State = OwnPresence::State;

TEST(OwnPresence, AMemberLeavesAndGoesWhenNoWaitIsUnderWay) {
  OwnPresence presence;
  EXPECT_TRUE(presence.is_member());
  EXPECT_FALSE(presence.may_go());
  presence.leave(/*group_has_failed=*/false);
  EXPECT_EQ(presence.state(), State::LEAVING);
  EXPECT_FALSE(presence.is_member());
  EXPECT_TRUE(presence.has_memory());
  EXPECT_TRUE(presence.may_go());
  presence.go();
  EXPECT_EQ(presence.state(), State::GONE);
  EXPECT_FALSE(presence.has_memory());
  EXPECT_FALSE(presence.may_go());
}

TEST(OwnPresence, StaysWhileAnyWaitIsUnderWay) {
  OwnPresence presence;
  presence.begin_wait();
  presence.begin_wait();
  presence.leave(/*group_has_failed=*/false);
  EXPECT_FALSE(presence.may_go());
  presence.end_wait();
  EXPECT_FALSE(presence.may_go());
  presence.end_wait();
  EXPECT_TRUE(presence.may_go());
}

TEST(OwnPresence, NeverGoesFromAGroupThatFailedBefore) {
  OwnPresence presence;
  presence.leave(/*group_has_failed=*/true);
  EXPECT_EQ(presence.state(), State::FAILED);
  EXPECT_FALSE(presence.is_member());
  EXPECT_TRUE(presence.has_memory());
  EXPECT_FALSE(presence.may_go());
}

}  // namespace
}  // namespace lockstep::shared
