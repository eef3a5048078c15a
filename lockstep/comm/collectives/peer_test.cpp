#include "lockstep/comm/collectives/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "testing/fake_backend.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Ranks `first`, `first` + 2, ... of the job.
ProcessGroup every_second(int first, int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) ranks[static_cast<std::size_t>(r)] = first + 2 * r;
  return {std::make_shared<testing::FakeBackend>(size), ranks};
}

TEST(RanksText, NamesRanksOfTheGroupAndOfTheWorld) {
  EXPECT_EQ(ranks_text(ProcessGroup(std::make_shared<testing::FakeBackend>(4)), {1, 3}), "ranks 1, 3");
  EXPECT_EQ(ranks_text(every_second(1, 4), {1}), "rank 1 (rank 3 of the world)");
}

// The length of a message does not grow with the job.
TEST(RanksText, OfHundredsOfRanksTheFirstAreNamed) {
  std::vector<int> odd;
  for (int r = 1; r < 500; r += 2) odd.push_back(r);
  const ProcessGroup group = every_second(0, 500);
  EXPECT_EQ(
      ranks_text(group, odd),
      "ranks 1, 3, 5, 7, 9, 11, 13, 15 and 242 more (ranks 2, 6, 10, 14, 18, 22, 26, 30 and 242 more of the "
      "world)");
  EXPECT_THAT([&] { Peer(1).in(group, "broadcast", "src"); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "whose global ranks are 0, 2, 4, 6, 8, 10, 12, 14 and 492 more; for a rank within")));
  EXPECT_THAT(
      [&] { ProcessGroup(nullptr, group.ranks()).require_member("Join"); },
      ThrowsMessage<InvalidArgument>(HasSubstr("whose ranks are 0, 2, 4, 6, 8, 10, 12, 14 and 492 more:")));
}

}  // namespace
}  // namespace lockstep
