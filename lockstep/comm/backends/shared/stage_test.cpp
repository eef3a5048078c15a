#include "lockstep/comm/backends/shared/stage.h"

#include <gtest/gtest.h>

#include "testing/fresh_control.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t KIB = 1024;

// The stage of rank 0 of two. Rank 1 is played by the test.
class StageOfTwo : public ::testing::Test {
 protected:
  // As a collective that rank 0 is through with.
  void post_and_finish() {
    sequencer_.post({.verb = Verb::BARRIER}, Placement::NOWHERE, 0, 0);
    sequencer_.finish(sequencer_.last());
  }
  void other_finishes(std::uint64_t sequence) { memory_.control.rank_line(1).finished.store(sequence); }

  const lockstep::testing::FreshControl memory_{2};
  Arena arena_{SharedMemory::create(std::size_t{64} << 20U)};
  Sequencer sequencer_{memory_.control, 0, 2};
  Stage stage_{arena_, sequencer_, memory_.control, 0, 2};
};

TEST_F(StageOfTwo, ABlockIsUsedAgainOnceAllRanksAreThroughWithIt) {
  post_and_finish();
  const std::size_t block = stage_.take(KIB);
  stage_.retire(1, block, KIB);
  EXPECT_NE(stage_.take(KIB), block);
  other_finishes(1);
  EXPECT_EQ(stage_.take(KIB), block);
}

TEST_F(StageOfTwo, ASmallRequestDoesNotTakeALargeBlock) {
  post_and_finish();
  other_finishes(1);
  const std::size_t block = stage_.take(1024 * KIB);
  stage_.retire(1, block, 1024 * KIB);
  stage_.take(KIB);  // and frees the large one
  EXPECT_EQ(arena_.allocated_blocks(), 1);
}

TEST_F(StageOfTwo, ABlockOfAMessageIsFreeOnceTheMessageIsTaken) {
  const std::size_t block = stage_.take(KIB);
  stage_.retire_message(1, 0, block, KIB);
  stage_.take(KIB);
  EXPECT_EQ(arena_.allocated_blocks(), 2);
  memory_.control.letter(0, 1, 0).taken.store(1);
  stage_.take(KIB);
  EXPECT_EQ(arena_.allocated_blocks(), 2);  // the first one is free, and this one is new
}

TEST_F(StageOfTwo, TidiesOnlyWhereManyBlocksHaveComeTogether) {
  post_and_finish();
  other_finishes(1);
  std::vector<std::size_t> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(stage_.take(KIB));
  for (int i = 0; i < 8; ++i) stage_.retire(1, blocks[static_cast<std::size_t>(i)], KIB);
  stage_.tidy();
  EXPECT_EQ(arena_.allocated_blocks(), 9);
  stage_.retire(1, blocks[8], KIB);
  stage_.tidy();
  EXPECT_EQ(arena_.allocated_blocks(), 0);
}

TEST_F(StageOfTwo, OneCallAtATimeHasTheWindow) {
  const auto window = stage_.take_window(KIB);
  ASSERT_TRUE(window);
  EXPECT_FALSE(stage_.take_window(KIB));
  stage_.give_back_window();
  EXPECT_EQ(stage_.take_window(KIB), window);
}

TEST_F(StageOfTwo, ALargerWindowRetiresTheSmallerOne) {
  post_and_finish();
  const auto small = stage_.take_window(KIB);
  stage_.give_back_window();
  const auto large = stage_.take_window(8 * KIB);
  EXPECT_NE(large, small);
  EXPECT_EQ(arena_.allocated_blocks(), 2);
  other_finishes(1);
  EXPECT_EQ(stage_.take(KIB), *small);
}

TEST_F(StageOfTwo, LeavingHandsOverAllBlocksAndTheWindow) {
  post_and_finish();
  const std::size_t block = stage_.take(KIB);
  stage_.retire(1, block, KIB);
  const auto window = stage_.take_window(KIB);
  const RetiredBlocks left = stage_.leave();
  ASSERT_EQ(left.size(), 2);
  EXPECT_EQ(left[0].offset, block);
  EXPECT_EQ(left[1].offset, *window);
  EXPECT_EQ(left[1].number, 1);
  EXPECT_TRUE(stage_.leave().empty());
}

}  // namespace
}  // namespace lockstep::shared
