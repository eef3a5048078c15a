// What one rank contributes is what the other finds: Contribution and Sources, and how long the caller's
// memory is lent.
#include "lockstep/comm/backends/shared/contribution.h"

#include <gtest/gtest.h>

#include "lockstep/comm/backends/shared/sources.h"
#include "testing/group_of_contexts.h"

namespace lockstep::shared {
namespace {

using Access = Contribution::Access;

constexpr std::size_t LARGE = STAGED_PIECE + 1000;

std::vector<std::byte> numbers(std::size_t count) {
  std::vector<std::byte> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<std::byte>(i * 7 % 251);
  return data;
}

void tell_nobody(std::span<const std::byte> /*piece*/) {}

// Rank 0 gives to collective 1, and rank 1 takes.
class GivenToRankOne : public ::testing::Test {
 protected:
  GivenToRankOne() { request_.verb = Verb::ALL_GATHER; }

  std::vector<std::byte> taken(const Source& source) {
    std::vector<std::byte> output(source.bytes);
    std::size_t copied = 0;
    EXPECT_EQ(sources_.copy_out(0, source, output.data(), copied), Copied::ALL);
    return output;
  }
  // Parts for ranks 0 and 1.
  Parts parts(const std::vector<std::byte>& data) { return {{}, data}; }
  std::byte* shared_memory(const std::vector<std::byte>& data) {
    std::byte* at = group_[0].arena().at(group_[0].arena().allocate(data.size()));
    std::memcpy(at, data.data(), data.size());
    return at;
  }

  lockstep::testing::GroupOfContexts group_{2};
  Request request_;
  const Call call_{.verb = Verb::ALL_GATHER};
  Contribution mine_{group_[0], 1};
  Sources sources_{group_[1], 1};
};

TEST_F(GivenToRankOne, NothingIsThereBeforeThePost) {
  mine_.put(request_, numbers(8).data(), 8);
  EXPECT_FALSE(sources_.is_posted(0));
  EXPECT_FALSE(sources_.is_complete(0));
  mine_.post(call_);
  EXPECT_TRUE(sources_.is_complete(0));
}

TEST_F(GivenToRankOne, SmallDataAreInTheLine) {
  const auto data = numbers(PostLine::ROOM);
  mine_.put(request_, data.data(), data.size());
  mine_.post(call_);
  EXPECT_EQ(sources_.placement(0), Placement::IN_LINE);
  EXPECT_EQ(taken(sources_.whole(0, data.size())), data);
}

TEST_F(GivenToRankOne, PrivateDataAreCopiedIntoABlockThatIsRetired) {
  const auto data = numbers(1000);
  mine_.put(request_, data.data(), data.size());
  mine_.post(call_);
  EXPECT_EQ(sources_.placement(0), Placement::IN_BLOCK);
  EXPECT_EQ(taken(sources_.whole(0, data.size())), data);
  EXPECT_FALSE(mine_.is_lent());
  EXPECT_NE(mine_.staged_block(), nullptr);
  mine_.retire();
  EXPECT_EQ(mine_.staged_block(), nullptr);
  EXPECT_EQ(group_[0].stage().leave().size(), 1);
}

TEST_F(GivenToRankOne, LargeDataAreReadWhileTheBlockGrows) {
  const auto data = numbers(LARGE);
  mine_.put(request_, data.data(), data.size());
  mine_.post(call_);
  EXPECT_EQ(sources_.placement(0), Placement::GROWING);
  const Source source = sources_.whole(0, LARGE);
  EXPECT_EQ(sources_.readable(0, source), 0);
  std::vector<std::size_t> seen;
  mine_.fill([&](std::span<const std::byte>) { seen.push_back(sources_.readable(0, source)); });
  EXPECT_EQ(seen, (std::vector<std::size_t>{0, STAGED_PIECE}));
  EXPECT_TRUE(sources_.is_complete(0));
  EXPECT_EQ(taken(source), data);
}

TEST_F(GivenToRankOne, DataOfTheGroupsMemoryAreLent) {
  const auto data = numbers(1000);
  mine_.put(request_, shared_memory(data), data.size());
  mine_.post(call_);
  EXPECT_EQ(sources_.placement(0), Placement::IN_PLACE);
  EXPECT_TRUE(mine_.is_lent());
  EXPECT_EQ(taken(sources_.whole(0, data.size())), data);
  mine_.withdraw();
  EXPECT_FALSE(mine_.is_lent());
}

TEST_F(GivenToRankOne, LentDataAreLostOnceTheGroupHasFailed) {
  const auto data = numbers(1000);
  mine_.lend(shared_memory(data), Access::READ);
  mine_.post(call_);
  group_[0].record_failure(aborted(0, "a test", ErrorCode::ABORTED, -1));
  std::vector<std::byte> output(data.size());
  std::size_t copied = 0;
  EXPECT_EQ(sources_.copy_out(0, sources_.whole(0, data.size()), output.data(), copied), Copied::SOME);
  EXPECT_EQ(copied, 0);
}

TEST_F(GivenToRankOne, MemoryThatOthersWriteIsNeverHandedOutAgainAfterAFailure) {
  std::byte* at = shared_memory(numbers(1000));
  mine_.lend(at, Access::WRITE);
  mine_.post(call_);
  mine_.give_up();
  Arena& arena = group_[0].arena();
  arena.free(arena.offset_of(at));
  EXPECT_NE(arena.at(arena.allocate(1000)), at);
}

TEST_F(GivenToRankOne, PrivateMemoryIsReadWhereItIsAsLongAsItsOwnerLives) {
  const auto data = numbers(1000);
  mine_.lend_private(data);
  mine_.post(call_);
  const Source source = sources_.whole(0, data.size());
  EXPECT_TRUE(source.is_private);
  EXPECT_EQ(taken(source), data);
  group_.peers->dead = 0;
  std::size_t copied = 0;
  std::vector<std::byte> output(data.size());
  EXPECT_EQ(sources_.copy_out(0, source, output.data(), copied), Copied::UNREADABLE);
}

TEST_F(GivenToRankOne, LateDataAreInABlockAfterAll) {
  const auto data = numbers(1000);
  mine_.lend_private(data);
  mine_.post(call_);
  sources_.read_late_blocks();
  EXPECT_FALSE(sources_.is_complete(0));
  EXPECT_FALSE(sources_.has_late_block(0));
  mine_.put_late_block(data.data(), data.size());
  EXPECT_TRUE(sources_.is_complete(0));
  EXPECT_FALSE(mine_.is_lent());
  const Source source = sources_.whole(0, data.size());
  EXPECT_FALSE(source.is_private);
  EXPECT_EQ(taken(source), data);
}

TEST_F(GivenToRankOne, EachRankFindsItsPart) {
  const auto data = numbers(300);
  mine_.put_parts(request_, parts(data));
  mine_.post(call_);
  EXPECT_EQ(sources_.part_entry(0).bytes, data.size());
  EXPECT_EQ(taken(sources_.part(0, data.size())), data);
}

TEST_F(GivenToRankOne, LargePartsGrow) {
  const auto data = numbers(LARGE);
  mine_.put_parts(request_, parts(data));
  mine_.post(call_);
  EXPECT_EQ(sources_.placement(0), Placement::GROWING);
  mine_.fill(tell_nobody);
  EXPECT_EQ(taken(sources_.part(0, data.size())), data);
}

TEST_F(GivenToRankOne, LargePartsOfTheGroupsMemoryAreLent) {
  const auto data = numbers(LARGE);
  mine_.put_parts(request_, {{}, {shared_memory(data), data.size()}});
  mine_.post(call_);
  EXPECT_EQ(sources_.placement(0), Placement::IN_PLACE);
  EXPECT_TRUE(mine_.is_lent());
  EXPECT_EQ(taken(sources_.part(0, data.size())), data);
}

TEST_F(GivenToRankOne, PrivatePartsComeLateBehindATableOfTheirOwn) {
  const auto data = numbers(300);
  mine_.lend_parts(parts(data), Placement::PRIVATE);
  mine_.post(call_);
  EXPECT_EQ(taken(sources_.part(0, data.size())), data);
  sources_.read_late_blocks();
  mine_.put_late_parts(parts(data));
  EXPECT_FALSE(sources_.part(0, data.size()).is_private);
  EXPECT_EQ(taken(sources_.part(0, data.size())), data);
}

TEST_F(GivenToRankOne, TheWindowIsForTheNextCallOnceTheCollectiveIsOver) {
  const auto data = numbers(300);
  ASSERT_TRUE(mine_.use_window(4096));
  EXPECT_FALSE(mine_.is_lent());
  mine_.lend_window(parts(data));
  EXPECT_TRUE(mine_.is_lent());
  mine_.post(call_);
  EXPECT_EQ(sources_.placement(0), Placement::WINDOWED);
  EXPECT_EQ(sources_.part_entry(0).bytes, data.size());
  Contribution next(group_[0], 2);
  EXPECT_FALSE(next.use_window(4096));
  mine_.end();
  EXPECT_TRUE(next.use_window(4096));
}

}  // namespace
}  // namespace lockstep::shared
