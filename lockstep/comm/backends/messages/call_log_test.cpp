#include "lockstep/comm/backends/messages/call_log.h"

#include <gtest/gtest.h>

#include <map>

#include "testing/calls.h"

namespace lockstep {
namespace {

using harness::sum_of;

TEST(CallLog, CallsThatAgreeAreSilent) {
  CallLog log(3);
  EXPECT_FALSE(log.hear(1, 1, sum_of(5)));  // before this rank's call
  EXPECT_FALSE(log.add(sum_of(5)));
  EXPECT_FALSE(log.hear(2, 1, sum_of(5)));  // and after
  EXPECT_EQ(log.last(), 1U);
}

TEST(CallLog, FindsADisagreementWhoeverIsFirst) {
  CallLog log(3);
  EXPECT_FALSE(log.hear(1, 1, sum_of(6)));
  const auto late = log.add(sum_of(5));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->rank, 1);
  EXPECT_EQ(late->mine.count, 5U);
  EXPECT_EQ(late->theirs.count, 6U);
  const auto early = log.hear(2, 1, {Verb::BARRIER});
  ASSERT_TRUE(early);
  EXPECT_EQ(early->sequence, 1U);
  EXPECT_EQ(early->theirs.verb, Verb::BARRIER);
}

TEST(CallLog, KnowsWhoHasCalledWhatLast) {
  CallLog log(2);
  EXPECT_EQ(log.last_call_of(1), "");
  log.hear(1, 7, sum_of(1));
  log.hear(1, 6, {Verb::BARRIER});
  EXPECT_TRUE(log.has_called(1, 7));
  EXPECT_FALSE(log.has_called(1, 8));
  EXPECT_EQ(log.last_call_of(1), "all_reduce #7");
}

TEST(CallLog, TheLateAreThoseWaitedForAndThoseTheyMayBeWaitingFor) {
  CallLog log(6);
  for (const auto& [rank, call] : std::map<int, std::uint64_t>{{1, 5}, {2, 4}, {3, 3}, {4, 5}, {5, 4}})
    log.hear(rank, call, sum_of(1));
  using Ranks = std::vector<int>;
  EXPECT_EQ(log.late(5, 0, {2}), (Ranks{2, 3, 5}))
      << "rank 2 is in #4, which rank 3 has not called, nor finished rank 5";
  EXPECT_EQ(log.late(5, 0, {3}), Ranks{3}) << "rank 2 may be waiting for rank 3, but not the other way";
  EXPECT_EQ(log.late(5, 0, {2, 3}), (Ranks{2, 3}));
  EXPECT_EQ(log.late(5, 0, {1, 4}), (Ranks{2, 3, 5})) << "those it exchanges something with have called it";
  EXPECT_EQ(log.late(3, 0, {1}), Ranks{}) << "all have called it";
  EXPECT_EQ(log.late(6, 0, {1}), (Ranks{1, 2, 3, 4, 5}));
  EXPECT_EQ(CallLog(3).late(1, 1, {2}), (Ranks{2, 0})) << "nothing was heard of anybody";
}

TEST(CallLog, RemembersTheLastThousandCalls) {
  CallLog log(2);
  for (std::size_t i = 0; i < 3 * CallLog::MEMORY; ++i) log.add(sum_of(i));
  const std::uint64_t oldest = 2 * CallLog::MEMORY + 1;
  EXPECT_FALSE(log.hear(1, oldest, sum_of(oldest - 1)));
  EXPECT_TRUE(log.hear(1, oldest, sum_of(oldest)));
  EXPECT_FALSE(log.hear(1, oldest - 1, sum_of(99999)));  // forgotten
}

}  // namespace
}  // namespace lockstep
