#include "lockstep/comm/backends/messages/turns.h"

#include <gtest/gtest.h>

namespace lockstep::messages {
namespace {

TEST(Turns, TheThreadServesUntilARankWaits) {
  Turns turns;
  EXPECT_TRUE(turns.is_the_threads());
  turns.end_turn_of_thread();
  EXPECT_TRUE(turns.is_the_threads()) << "nobody waits";
  const Turns::Waiting waiting(turns);
  EXPECT_FALSE(turns.begin_turn()) << "the thread serves still";
  turns.end_turn_of_thread();
  EXPECT_TRUE(turns.is_nobodys());
}

TEST(Turns, OneRankServesAtATime) {
  Turns turns;
  const Turns::Waiting first(turns);
  const Turns::Waiting second(turns);
  turns.end_turn_of_thread();
  EXPECT_TRUE(turns.begin_turn());
  EXPECT_TRUE(turns.is_a_waiters());
  EXPECT_FALSE(turns.begin_turn());
  turns.end_turn();
  EXPECT_TRUE(turns.begin_turn());
}

TEST(Turns, WhatIsPendingIsTheThreadsWhenNobodyWaits) {
  Turns turns;
  {
    const Turns::Waiting waiting(turns);
    turns.end_turn_of_thread();
    turns.count_pending(1);
    turns.serve_pending();
    EXPECT_TRUE(turns.is_nobodys()) << "a rank waits, and will serve";
  }
  turns.serve_pending();
  EXPECT_TRUE(turns.is_the_threads());
}

TEST(Turns, NothingPendingNeedsNobody) {
  Turns turns;
  {
    const Turns::Waiting waiting(turns);
    turns.end_turn_of_thread();
  }
  turns.count_pending(1);
  turns.count_pending(-1);
  turns.serve_pending();
  EXPECT_TRUE(turns.is_nobodys());
}

TEST(Turns, ARankThatServesIsWokenByNewsOnly) {
  Turns turns;
  const Turns::Waiting waiting(turns);
  turns.end_turn_of_thread();
  EXPECT_TRUE(turns.begin_turn());
  EXPECT_FALSE(turns.tell_waiters()) << "there is no news";
  turns.note_news();
  EXPECT_TRUE(turns.tell_waiters());
  EXPECT_FALSE(turns.tell_waiters()) << "it was told once";
}

TEST(Turns, AfterTheEndOfTheThreadRanksServe) {
  Turns turns;
  turns.end_thread();
  turns.count_pending(1);
  turns.serve_pending();
  EXPECT_TRUE(turns.is_nobodys()) << "the thread would never come";
  const Turns::Waiting waiting(turns);
  EXPECT_TRUE(turns.begin_turn());
}

}  // namespace
}  // namespace lockstep::messages
