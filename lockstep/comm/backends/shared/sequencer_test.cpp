#include "lockstep/comm/backends/shared/sequencer.h"

#include <gtest/gtest.h>

#include "testing/fresh_control.h"

namespace lockstep::shared {
namespace {

using ::lockstep::testing::FreshControl;

const Call BARRIER{.verb = Verb::BARRIER};

TEST(Sequencer, NumbersCollectivesFromOneAndFillsTheLineOfThatNumber) {
  const FreshControl memory(2);
  Sequencer sequencer(memory.control, 1, 2);
  EXPECT_EQ(sequencer.last(), 0);
  sequencer.post({.verb = Verb::ALL_REDUCE, .count = 5}, Placement::IN_BLOCK, 4096, 40);
  EXPECT_EQ(sequencer.last(), 1);
  const PostLine& line = memory.control.post_line(1, 1);
  EXPECT_EQ(line.sequence.load(), 1);
  EXPECT_EQ(line.call.verb, Verb::ALL_REDUCE);
  EXPECT_EQ(line.call.count, 5);
  EXPECT_EQ(line.placement, Placement::IN_BLOCK);
  EXPECT_EQ(line.offset, 4096);
  EXPECT_EQ(line.bytes, 40);
  EXPECT_EQ(memory.control.rank_line(1).last.load() >> NUMBER_BITS, 1);
  EXPECT_EQ(memory.control.post_line(1, 0).sequence.load(), 0);
}

TEST(Sequencer, ALineIsNotPublishedBeforeItsSequenceIsStored) {
  const FreshControl memory(1);
  Sequencer sequencer(memory.control, 0, 1);
  PostLine& line = sequencer.fill_next(BARRIER, Placement::NOWHERE, 0, 0);
  EXPECT_EQ(sequencer.last(), 1);
  EXPECT_EQ(line.sequence.load(), 0);
}

TEST(Sequencer, TellsTheOthersOnlyOfWhatIsFinishedWithoutAGap) {
  const FreshControl memory(2);
  Sequencer sequencer(memory.control, 0, 2);
  const auto& told = memory.control.rank_line(0).finished;
  for (int i = 0; i < 4; ++i) sequencer.post(BARRIER, Placement::NOWHERE, 0, 0);
  sequencer.finish(2);
  sequencer.finish(4);
  EXPECT_EQ(told.load(), 0);
  sequencer.finish(1);
  EXPECT_EQ(told.load(), 2);
  sequencer.finish(3);
  EXPECT_EQ(told.load(), 4);
  sequencer.post(BARRIER, Placement::NOWHERE, 0, 0);
  EXPECT_EQ(memory.control.post_line(5, 0).finished, 4);
}

TEST(Sequencer, ACollectiveIsFinishedWhenTheLastRankHasFinishedItOrLeft) {
  const FreshControl memory(3);
  Sequencer sequencer(memory.control, 0, 3);
  sequencer.post(BARRIER, Placement::NOWHERE, 0, 0);
  sequencer.finish(1);
  memory.control.rank_line(1).finished.store(1);
  EXPECT_FALSE(sequencer.all_finished(1));
  EXPECT_TRUE(sequencer.has_finished(1, 1));
  EXPECT_FALSE(sequencer.has_finished(2, 1));
  memory.control.rank_line(2).presence.store(static_cast<std::uint32_t>(Presence::LEFT));
  EXPECT_TRUE(sequencer.all_finished(1));
}

TEST(Sequencer, LearnsFromPostsAndDoesNotForget) {
  const FreshControl memory(2);
  Sequencer sequencer(memory.control, 0, 2);
  sequencer.learn_finished(1, 7);
  sequencer.learn_finished(1, 3);
  EXPECT_TRUE(sequencer.has_finished(1, 7));
  EXPECT_FALSE(sequencer.has_finished(1, 8));
}

TEST(Sequencer, ASlotIsFreeOnceAllHaveFinishedTheCollectiveThatUsedItLast) {
  const FreshControl memory(2);
  Sequencer sequencer(memory.control, 0, 2);
  for (std::uint64_t s = 1; s <= SLOTS; ++s) {
    EXPECT_TRUE(sequencer.is_slot_free(s));
    sequencer.post(BARRIER, Placement::NOWHERE, 0, 0);
    sequencer.finish(s);
  }
  EXPECT_FALSE(sequencer.is_slot_free(SLOTS + 1));
  memory.control.rank_line(1).finished.store(1);
  EXPECT_TRUE(sequencer.is_slot_free(SLOTS + 1));
  EXPECT_FALSE(sequencer.is_slot_free(SLOTS + 2));
}

}  // namespace
}  // namespace lockstep::shared
