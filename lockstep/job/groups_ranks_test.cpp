// new_group and its relatives in a real job: the members, their ranks, and the refusals.
#include "lockstep/job/groups.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::sum_over;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Every subset of the ranks is a group. Its members sum their ranks; the call has no effect on other ranks.
RANKS_TEST(NewGroup, AnySubsetOfTheRanks, Ranks(1, 2, 3, 4)) {
  for (int subset = 0; subset < 1 << size(); ++subset) {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      if ((subset >> r & 1) != 0) ranks.push_back(r);
    }
    const ProcessGroup group = new_group(ranks);
    EXPECT_EQ(group.ranks(), ranks);
    EXPECT_EQ(get_process_group_ranks(group), ranks);
    const bool member = contains(ranks, rank());
    EXPECT_EQ(group.is_member(), member);
    EXPECT_EQ(get_world_size(group), member ? static_cast<int>(ranks.size()) : -1);
    EXPECT_EQ(sum_over(group, rank()), member ? std::accumulate(ranks.begin(), ranks.end(), 0) : rank());
    for (int r = 0; r < group.size(); ++r) {
      EXPECT_EQ(get_global_rank(group, r), ranks[static_cast<std::size_t>(r)]);
      EXPECT_EQ(get_group_rank(group, ranks[static_cast<std::size_t>(r)]), r);
      EXPECT_EQ(get_rank(group) == r, rank() == ranks[static_cast<std::size_t>(r)]);
    }
    destroy_process_group(group);
  }
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(NewGroup, RanksAreSortedAsTorchDoes, Ranks(3, 4)) {
  const ProcessGroup group = new_group({2, 0, 1});
  EXPECT_THAT(group.ranks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(group.rank(), rank() < 3 ? rank() : -1);
}

RANKS_TEST(NewGroup, OfAllRanks, Ranks(1, 2, 3, 4)) {
  const ProcessGroup group = new_group({.name = "everybody"});
  EXPECT_EQ(group.ranks(), world().ranks());
  EXPECT_EQ(group.name(), "everybody");
  EXPECT_EQ(sum_over(group, 1), size());
}

RANKS_TEST(NewGroup, RefusesBeforeAnythingIsSent, Ranks(2)) {
  // Rank 1 does not call, so a message to it would never be answered.
  if (rank() == 0) {
    EXPECT_THAT(
        [] {
          new_group({0, 2});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("2 is not a rank of the world (0 to 1)")));
    EXPECT_THAT([] { new_group({-1}); }, ThrowsMessage<InvalidArgument>(HasSubstr("-1 is not a rank")));
    EXPECT_THAT(
        [] {
          new_group({1, 0, 1});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("rank 1 occurs twice")));
    EXPECT_THAT(
        [] { new_group({.backend = "ucc"}); },
        ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"ucc\""), HasSubstr("self"), HasSubstr("shm"))));
    EXPECT_THAT([] { new_group({.backend = "self"}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("serves groups of one rank")));
    EXPECT_THAT([] { new_subgroups(3); }, ThrowsMessage<InvalidArgument>(HasSubstr("must divide")));
    EXPECT_THAT(
        [] {
          new_subgroups_by_enumeration({{0}, {1, 0}});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("rank 0 is in two subgroups")));
    EXPECT_THAT(
        [] {
          new_subgroups_by_enumeration({{0}, {}});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("subgroup 1 has no ranks")));
    EXPECT_THAT([] { get_group_rank(lockstep::world(), 2); },
                ThrowsMessage<InvalidArgument>(HasSubstr("rank 2 of the world is not in group \"world\"")));
    EXPECT_THAT([] { get_global_rank(lockstep::world(), -1); },
                ThrowsMessage<InvalidArgument>(HasSubstr("has no rank -1")));
  }
  comm::barrier(world());
}

RANKS_TEST(NewGroup, OwnTimeout, Ranks(2)) {
  const ProcessGroup group = new_group({.timeout = std::chrono::milliseconds(50), .name = "hasty"});
  if (rank() == 0) {
    EXPECT_THAT([&] { comm::barrier(group); },
                ThrowsMessage<Timeout>(AllOf(HasSubstr("no progress for 0.05 s"), HasSubstr("\"hasty\""))));
  }
  EXPECT_EQ(sum_over(world(), 1), 2);
}

RANKS_TEST(NewGroup, ATimeoutLongerThanClocksCountIsForEver, Ranks(1, 2, 3), Backends("shm", "tcp")) {
  const ProcessGroup group = new_group({.timeout = std::chrono::milliseconds::max()});
  long sum = 1;
  comm::all_reduce(group, std::span(&sum, 1), ReduceOp::SUM, /*async_op=*/true).wait();
  EXPECT_EQ(sum, size());
  EXPECT_EQ(sum_over(group, rank()), size() * (size() - 1) / 2);
  destroy_process_group(group);
}

RANKS_TEST(NewGroup, OverSelfInAWorldOverShm, Ranks(1, 2, 3)) {
  const ProcessGroup alone = new_group({0}, {.backend = "self"});
  EXPECT_EQ(alone.backend_name(), rank() == 0 ? "self" : "none");
  EXPECT_EQ(sum_over(alone, 7), 7);
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(NewGroup, OverShmInAWorldOverSelf, Ranks(1), Backends("self")) {
  const ProcessGroup shared = new_group({.backend = "shm"});
  EXPECT_EQ(shared.backend_name(), "shm");
  EXPECT_EQ(sum_over(shared, 7), 7);
}

// The ranks meet over the world's messages and pass memory through sockets of the machine.
RANKS_TEST(NewGroup, OverShmInAWorldOverTcp, Ranks(2, 3, 4), Backends("tcp")) {
  const ProcessGroup group = new_group({0, size() - 1}, {.backend = "shm"});
  EXPECT_EQ(group.is_member(), rank() == 0 || rank() == size() - 1);
  if (group.is_member()) {
    EXPECT_EQ(group.backend_name(), "shm");
    EXPECT_EQ(sum_over(group, rank()), size() - 1);
  }
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(NewGroup, OverTcpInAWorldOverShm, Ranks(2, 3, 4)) {
  const ProcessGroup group = new_group({.backend = "tcp"});
  EXPECT_EQ(group.backend_name(), "tcp");
  EXPECT_EQ(sum_over(group, rank()), size() * (size() - 1) / 2);
  EXPECT_EQ(sum_over(world(), 1), size());
}

// Splitting a group of some ranks does not change the names of later groups on the other ranks.
RANKS_TEST(NewGroup, AfterAGroupWasSplit, Ranks(3)) {
  const ProcessGroup pair = new_group({0, 1});
  if (pair.is_member()) {
    EXPECT_EQ(split_group(pair, 0).name(), "group 1/split");
  }
  EXPECT_EQ(sum_over(new_group(), 1), 3);
}

// torch: new_group(..., use_local_synchronization=True). A rank calls it only for its own groups.
RANKS_TEST(NewGroup, MembersAloneMakeIt, Ranks(1, 2, 3, 4), EveryBackend(), Except("thread")) {
  const NewGroupOptions alone = {.use_local_synchronization = true};
  std::vector<int> mine;
  for (int r = rank() % 2; r < size(); r += 2) mine.push_back(r);
  const ProcessGroup first = new_group(mine, alone);
  EXPECT_EQ(first.ranks(), mine);
  EXPECT_EQ(first.name(), "group of " + number_list(mine));
  EXPECT_EQ(sum_over(first, rank()), std::accumulate(mine.begin(), mine.end(), 0));
  const ProcessGroup second = new_group(mine, alone);
  EXPECT_EQ(second.name(), "group of " + number_list(mine) + " (2)");
  EXPECT_EQ(sum_over(second, 1), static_cast<int>(mine.size()));
  destroy_process_group(first);
  EXPECT_EQ(sum_over(second, 2), 2 * static_cast<int>(mine.size()));
  // The numbers of groups that all ranks make do not change.
  EXPECT_EQ(new_group().name(), "group 1");
}

RANKS_TEST(NewGroup, WhoIsNoMemberOfALocalOneDoesNotWait, Ranks(2, 3)) {
  const ProcessGroup group = new_group({0}, {.use_local_synchronization = true});
  EXPECT_EQ(group.is_member(), rank() == 0);
  EXPECT_EQ(sum_over(group, 5), 5);
  EXPECT_THAT([] { new_subgroups(1, {.use_local_synchronization = true}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("use_local_synchronization is for new_group")));
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(NewGroup, LocallyOverAnotherBackend, Ranks(3, 4)) {
  if (rank() > 0) {
    std::vector<int> others(static_cast<std::size_t>(size() - 1));
    std::iota(others.begin(), others.end(), 1);
    const ProcessGroup group = new_group(others, {.backend = "tcp", .use_local_synchronization = true});
    EXPECT_EQ(group.backend_name(), "tcp");
    EXPECT_EQ(sum_over(group, 1), size() - 1);
  }
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(NewGroup, DestroyingTheWorldClosesItsGroups, Ranks(1, 2, 3), WithoutGroup()) {
  for (int round = 0; round < 3; ++round) {
    init_process_group();
    const ProcessGroup group = new_group();
    EXPECT_EQ(group.name(), "group 1");
    EXPECT_EQ(sum_over(group, 1), size());
    destroy_process_group();
    EXPECT_THAT([&] { comm::barrier(group); }, ThrowsMessage<Aborted>(HasSubstr("left the group")));
  }
}

RANKS_TEST(NewGroup, ADestroyedGroupIsLeft, Ranks(2, 3)) {
  const ProcessGroup group = new_group();
  if (rank() == 1) {
    destroy_process_group(group);
    EXPECT_THAT([&] { comm::barrier(group); }, ThrowsMessage<Aborted>(HasSubstr("left the group")));
  } else {
    EXPECT_THAT([&] { comm::barrier(group); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
  }
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(NewGroup, DestroyingTheGroupOfAllDestroysTheWorld, Ranks(1, 2), WithoutGroup()) {
  init_process_group();
  destroy_process_group(lockstep::world());
  EXPECT_FALSE(is_initialized());
}

RANKS_TEST(NewGroup, AThousandTimesWithoutGrowth, Ranks(1, 2, 4)) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  for (int round = 0; round < 1000; ++round) {
    const ProcessGroup group = new_group({round % size()});
    ASSERT_EQ(sum_over(group, 3), 3);
    destroy_process_group(group);
  }
  EXPECT_LE(descriptors(), before);  // a socket of the start may have closed since
}

RANKS_TEST(NewSubgroups, ConsecutiveRanks, Ranks(1, 2, 4)) {
  const int each = std::max(1, size() / 2);
  const Subgroups groups = new_subgroups(each);
  ASSERT_EQ(groups.all.size(), static_cast<std::size_t>(size() / each));
  EXPECT_EQ(groups.mine.rank(), rank() % each);
  EXPECT_EQ(groups.all[static_cast<std::size_t>(rank() / each)].rank(), rank() % each);
  for (std::size_t i = 0; i < groups.all.size(); ++i) {
    EXPECT_EQ(groups.all[i].ranks().front(), static_cast<int>(i) * each);
    EXPECT_EQ(groups.all[i].is_member(), rank() / each == static_cast<int>(i));
  }
  EXPECT_EQ(sum_over(groups.mine, 1), each);
}

RANKS_TEST(NewSubgroups, ByEnumeration, Ranks(4)) {
  const Subgroups groups = new_subgroups_by_enumeration({{3, 0}, {1}});
  EXPECT_THAT(groups.all[0].ranks(), ElementsAre(0, 3));
  EXPECT_EQ(groups.mine.is_member(), rank() != 2);
  EXPECT_EQ(sum_over(groups.mine, 1), rank() == 1 || rank() == 2 ? 1 : 2);
}

// Like MPI_Comm_split: the same color together, ordered by key, then by rank.
RANKS_TEST(SplitGroup, ByColorAndKey, Ranks(1, 2, 3, 4), EveryBackend()) {
  const ProcessGroup group = split_group(world(), rank() % 2, -rank());
  std::vector<int> expected;
  for (int r = size(); r-- > 0;) {
    if (r % 2 == rank() % 2) expected.push_back(r);
  }
  EXPECT_EQ(group.ranks(), expected);
  EXPECT_EQ(sum_over(group, rank()), std::accumulate(expected.begin(), expected.end(), 0));
  const ProcessGroup halves = split_group(group, 0);  // equal keys: the order of the parent
  EXPECT_EQ(halves.ranks(), expected);
  const ProcessGroup last = split_group(group, group.rank() == 0 ? 7 : -1);
  EXPECT_EQ(last.is_member(), group.rank() == 0);
  EXPECT_EQ(sum_over(last, 1), 1);
  EXPECT_EQ(sum_over(world(), 1), size());
}

}  // namespace
}  // namespace lockstep
