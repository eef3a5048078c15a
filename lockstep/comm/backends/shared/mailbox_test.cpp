#include "lockstep/comm/backends/shared/mailbox.h"

#include <gtest/gtest.h>

namespace lockstep::shared {
namespace {

TEST(ReceiveQueue, AMessageGoesToTheReceiveThatWasCalledFirst) {
  ReceiveQueue receives;
  const auto first = receives.called(1, 7);
  const auto second = receives.called(1, 7);
  EXPECT_TRUE(receives.is_first(first, 1, 7));
  EXPECT_FALSE(receives.is_first(second, 1, 7));
  receives.served(first);
  EXPECT_TRUE(receives.is_first(second, 1, 7));
}

TEST(ReceiveQueue, AReceiveFromAnySourceIsBeforeLaterOnesFromEach) {
  ReceiveQueue receives;
  const auto any = receives.called(ANY_SOURCE, 7);
  const auto from_two = receives.called(2, 7);
  EXPECT_FALSE(receives.is_first(from_two, 2, 7));
  EXPECT_TRUE(receives.is_first(any, 2, 7));
}

TEST(ReceiveQueue, OtherTagsAndSourcesDoNotStandInTheWay) {
  ReceiveQueue receives;
  receives.called(1, 7);
  receives.called(2, 8);
  const auto third = receives.called(2, 7);
  EXPECT_TRUE(receives.is_first(third, 2, 7));
}

TEST(Mailbox, CountsMessagesToEachRankFromZero) {
  Mailbox mailbox(2);
  EXPECT_EQ(mailbox.next_number(0), 0);
  EXPECT_EQ(mailbox.next_number(1), 0);
  EXPECT_EQ(mailbox.next_number(1), 1);
}

}  // namespace
}  // namespace lockstep::shared
