// Groups that their members alone make, while the other ranks are anywhere in their programs.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/ranks.h"
#include "testing/reference.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::sum_over;

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

bool is_in(const std::vector<int>& members, int rank) {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

std::vector<int> all_of(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Called by members only; they are ranks of the parent.
ProcessGroup split_over(const ProcessGroup& parent, const std::vector<int>& members,
                        const std::string& name) {
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(parent.ranks()[static_cast<std::size_t>(member)]);
  return {parent.backend().split_over(members, name, {}), ranks};
}

// The same ranks once more, which give up after a moment.
ProcessGroup hasty(const ProcessGroup& parent) {
  return {parent.backend().split({all_of(parent.size())}, "hasty", {.timeout = milliseconds(300)}),
          parent.ranks()};
}

// Every subset, from its highest rank down to its lowest.
RANKS_TEST(SplitOver, TheMembersAloneMakeAGroup, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (int subset = 1; subset < 1 << size(); ++subset) {
    std::vector<int> members;
    for (int r = size(); r-- > 0;) {
      if ((subset >> r & 1) != 0) members.push_back(r);
    }
    if (!is_in(members, rank())) continue;
    const ProcessGroup group = split_over(world(), members, "some");
    EXPECT_EQ(group.backend().size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[static_cast<std::size_t>(group.rank())], rank());
    EXPECT_EQ(group.name(), "some");
    EXPECT_EQ(sum_over(group, 10 + rank()),
              10 * group.size() + std::accumulate(members.begin(), members.end(), 0));
    group.close();
  }
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(SplitOver, DisjointGroupsAtOnce, Ranks(2, 3, 4), BackendsWithPeers()) {
  std::vector<int> members;
  for (int r = rank() % 2; r < size(); r += 2) members.push_back(r);
  std::vector<ProcessGroup> groups;
  for (int round = 0; round < 20; ++round) {
    groups.push_back(split_over(world(), members, str("round ", round)));
    EXPECT_EQ(sum_over(groups.back(), rank()), std::accumulate(members.begin(), members.end(), 0));
  }
  for (const ProcessGroup& group : groups) EXPECT_EQ(sum_over(group, 1), static_cast<int>(members.size()));
  EXPECT_EQ(sum_over(world(), 1), size());
}

// The last rank waits for a message that comes after the group is made, and makes its part of an earlier
// collective only then.
RANKS_TEST(SplitOver, OtherRanksMayBeAnywhere, Ranks(3, 4), BackendsWithPeers()) {
  const int last = size() - 1;
  int ones = 1;
  int ready = 0;
  if (rank() == last) comm::recv(world(), std::span(&ready, 1), GroupRank{0});
  Work sum = comm::all_reduce(world(), std::span(&ones, 1), ReduceOp::SUM, /*async_op=*/true);
  if (rank() != last) {
    const ProcessGroup group = split_over(world(), all_of(last), "but one");
    EXPECT_EQ(sum_over(group, 1), last);
    if (rank() == 0) comm::send(world(), std::span<const int>(&ready, 1), GroupRank{last});
  }
  sum.wait();
  EXPECT_EQ(ones, size());
}

// A program's messages from anybody are its own: the members' messages are not among them.
RANKS_TEST(SplitOver, MessagesOfTheProgramAreItsOwn, Ranks(2, 3), BackendsWithPeers()) {
  const int next = (rank() + 1) % size();
  int received = -1;
  Work any = comm::irecv(world(), std::span(&received, 1), ANY_SOURCE);
  const ProcessGroup group = split_over(world(), all_of(size()), "all");
  const int mine = 100 + rank();
  comm::send(world(), std::span<const int>(&mine, 1), GroupRank{next});
  any.wait();
  EXPECT_EQ(received, 100 + (rank() + size() - 1) % size());
  EXPECT_EQ(sum_over(group, 1), size());
}

RANKS_TEST(SplitOver, TheSameMembersTwice, Ranks(2, 3), BackendsWithPeers()) {
  const ProcessGroup one = split_over(world(), all_of(size()), "pair");
  const ProcessGroup two = split_over(world(), all_of(size()), "pair");
  if (rank() == 0) one.abort("enough of the first");
  EXPECT_THAT(
      [&] {
        while (true) comm::barrier(one);
      },
      ThrowsMessage<Aborted>(HasSubstr("enough of the first")));
  EXPECT_EQ(sum_over(two, 1), size());
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(SplitOver, GroupsOfGroups, Ranks(4), BackendsWithPeers()) {
  if (rank() == 2) return;
  const ProcessGroup three = split_over(world(), {3, 1, 0}, "three");
  if (rank() == 1) return three.close();                      // or the others could see a member die
  const ProcessGroup two = split_over(three, {2, 0}, "two");  // ranks 0 and 3 of the world
  EXPECT_EQ(two.rank(), rank() == 0 ? 0 : 1);
  EXPECT_EQ(sum_over(two, rank()), 3);
}

RANKS_TEST(SplitOver, MembersThatDisagreeAreToldBoth, Ranks(3, 4), BackendsWithPeers()) {
  if (rank() < 3) {
    EXPECT_THAT(
        [&] {
          split_over(world(), rank() == 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2}, "rows");
        },
        ThrowsMessage<Mismatch>(AllOf(HasSubstr("called split_over \"rows\" of the ranks {0-2}"),
                                      HasSubstr("rank 1 called split_over \"rows\" of the ranks {0, 1}"))));
  }
  EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<Mismatch>(HasSubstr("{0, 1}")));
}

RANKS_TEST(SplitOver, DifferentNamesAreADisagreement, Ranks(2), BackendsWithPeers()) {
  EXPECT_THAT(
      [&] {
        split_over(world(), {0, 1}, rank() == 0 ? "rows" : "columns");
      },
      ThrowsMessage<Mismatch>(AllOf(HasSubstr("rows"), HasSubstr("columns"))));
}

RANKS_TEST(SplitOver, AMemberThatDoesNotComeIsNamed, Ranks(2, 3, 4), BackendsWithPeers()) {
  const ProcessGroup parent = hasty(world());
  const int last = size() - 1;
  // One of the others may be named beside it, which came late itself.
  const auto names_it = AllOf(ContainsRegex(str("no progress for 0.3 s, waiting for .*rank ", last)),
                              HasSubstr("every one of its members"));
  if (rank() != last) {
    EXPECT_THAT([&] { split_over(parent, all_of(size()), "all"); },
                ThrowsMessage<Timeout>(AllOf(HasSubstr("for a new group on group \"hasty\""), names_it)));
  } else {  // until the others have given up
    EXPECT_THAT([&] { comm::barrier(parent, /*async_op=*/true).wait(std::chrono::seconds(30)); },
                ThrowsMessage<Timeout>(names_it));
  }
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(SplitOver, ADeadMemberIsNamed, Ranks(2, 3), BackendsWithPeers(), Except("thread"), Dies({1})) {
  if (rank() == 1) die();
  EXPECT_THAT([&] { split_over(world(), all_of(size()), "all"); },
              ThrowsMessage<PeerLost>(AllOf(HasSubstr("rank 1 (pid"), HasSubstr("is dead"))));
}

RANKS_TEST(SplitOver, AThousandTimesWithoutGrowth, Ranks(2, 3), BackendsWithPeers()) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  std::vector<std::ptrdiff_t>
      counts;  // of a tenth of the rounds, when all that is opened once is open, and of all
  constexpr int ROUNDS = reference::THOROUGH ? 1000 : 100;
  for (int round = 1; round <= ROUNDS; ++round) {
    const ProcessGroup group = split_over(world(), all_of(size()), "again");
    ASSERT_EQ(sum_over(group, 1), size());
    group.close();
    if (round != ROUNDS / 10 && round != ROUNDS) continue;
    comm::barrier(world());
    counts.push_back(descriptors());
    comm::barrier(world());
  }
  if (backend_name() != "thread") {
    EXPECT_LE(counts.back(), counts.front());
  }
}

}  // namespace
}  // namespace lockstep
