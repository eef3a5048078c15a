#include "lockstep/launch/job_cause.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep {
namespace {

TEST(JobCause, EndsComeBackFromTheStoreAsTheyWere) {
  const std::vector<RankEnd> ends = {{3, {7, 0}, false, false, std::chrono::milliseconds(1200), std::nullopt},
                                     {4,
                                      {0, SIGKILL},
                                      true,
                                      true,
                                      std::chrono::milliseconds(5),
                                      ToldFailure{ErrorCode::TIMEOUT, -1, std::chrono::milliseconds(4)}}};
  EXPECT_EQ(pack_ends(unpack_ends(pack_ends(ends))), pack_ends(ends));
  const RankEnd second = unpack_ends(pack_ends(ends)).at(1);
  EXPECT_EQ(second.rank, 4);
  EXPECT_EQ(second.status.signal, SIGKILL);
  EXPECT_TRUE(second.was_stopped && second.stood_still);
  ASSERT_TRUE(second.told);
  EXPECT_EQ(second.told->code, ErrorCode::TIMEOUT);
  EXPECT_EQ(second.told->culprit, -1);
  EXPECT_EQ(second.told->after, std::chrono::milliseconds(4));
}

TEST(JobCause, WhatIsNoneIsNotRead) {
  EXPECT_TRUE(unpack_ends("").empty());
  EXPECT_TRUE(unpack_ends("3 x").empty());
}

TEST(JobCause, TheExitCodeIsTheCausesOrThatOfTheFirstRankThatFailedBecauseOfIt) {
  const std::vector<RankEnd> ends = {{0, {0, 0}, false, false, std::chrono::milliseconds(1), {}},
                                     {1, {5, 0}, false, false, std::chrono::milliseconds(9), {}},
                                     {2, {6, 0}, false, false, std::chrono::milliseconds(8), {}}};
  EXPECT_EQ(exit_code_of({.rank = 1}, ends), 5);
  EXPECT_EQ(exit_code_of({.rank = 0, .kind = CauseKind::LEFT}, ends), 6);
  EXPECT_EQ(exit_code_of({.rank = 7, .kind = CauseKind::LOST}, {}), 1);
}

}  // namespace
}  // namespace lockstep
