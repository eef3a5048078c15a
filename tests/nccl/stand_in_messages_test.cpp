// Sends, receives and groups of the stand-in for NCCL.
#include <vector>

#include "tests/nccl/stand_in_ranks.h"

namespace lockstep::nccl::stand_in {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t LARGE = 100'000;  // three times what a channel holds

std::vector<int> message(std::size_t count, int from, int to) {
  std::vector<int> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = static_cast<int>(i) + 1'000'000 * from + 100'000'000 * to;
  return numbers;
}

Result send(const Rank& rank, const std::vector<int>& data, int to) {
  return rank.nccl.send(data.data(), data.size(), INT32, to, rank.comm, rank.stream());
}

Result receive(const Rank& rank, std::vector<int>& data, int from) {
  return rank.nccl.recv(data.data(), data.size(), INT32, from, rank.comm, rank.stream());
}

class StandInGroups : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StandInGroups, ::testing::Values(1, 2, 3));

TEST_P(StandInGroups, EverybodyToEverybodyInAnyOrder) {
  in_ranks(GetParam(), [](Rank& rank) {
    std::vector<std::vector<int>> given;
    std::vector<std::vector<int>> taken(static_cast<std::size_t>(rank.size), std::vector<int>(LARGE));
    for (int r = 0; r < rank.size; ++r) given.push_back(message(LARGE, rank.rank, r));
    EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
    for (int k = 0; k < rank.size; ++k) {
      const int r = rank.rank % 2 == 0 ? k : rank.size - 1 - k;
      const auto place = static_cast<std::size_t>(r);
      if (rank.rank % 2 == 0) EXPECT_EQ(send(rank, given[place], r), SUCCESS);
      EXPECT_EQ(receive(rank, taken[place], r), SUCCESS);
      if (rank.rank % 2 != 0) EXPECT_EQ(send(rank, given[place], r), SUCCESS);
    }
    EXPECT_EQ(rank.nccl.group_end(), SUCCESS);
    rank.finish();
    for (int r = 0; r < rank.size; ++r) {
      EXPECT_TRUE(taken[static_cast<std::size_t>(r)] == message(LARGE, r, rank.rank)) << "from " << r;
    }
  });
}

TEST_P(StandInGroups, NothingStartsBeforeTheOutermostEnd) {
  in_ranks(GetParam(), [](Rank& rank) {
    int sum = rank.rank;
    int largest = rank.rank;
    EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
    EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
    EXPECT_EQ(rank.nccl.all_reduce(&sum, &sum, 1, INT32, SUM, rank.comm, rank.stream()), SUCCESS);
    EXPECT_EQ(rank.nccl.group_end(), SUCCESS);
    EXPECT_EQ(rank.nccl.all_reduce(&largest, &largest, 1, INT32, MAX, rank.comm, rank.stream()), SUCCESS);
    rank.all_ranks_here();
    EXPECT_TRUE(rank.is_done_within(milliseconds(5000)));  // the stream has nothing to do yet
    EXPECT_EQ(sum, rank.rank);
    EXPECT_EQ(rank.nccl.group_end(), SUCCESS);
    rank.finish();
    EXPECT_EQ(sum, rank.size * (rank.size - 1) / 2);
    EXPECT_EQ(largest, rank.size - 1);
  });
}

TEST(StandInGroup, CollectivesAndMessagesInOppositeOrders) {
  in_ranks(2, [](Rank& rank) {
    const auto given = message(LARGE, rank.rank, 1);
    std::vector<int> taken(LARGE);
    int sum = rank.rank + 1;
    EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
    if (rank.rank == 0) EXPECT_EQ(send(rank, given, 1), SUCCESS);
    EXPECT_EQ(rank.nccl.all_reduce(&sum, &sum, 1, INT32, SUM, rank.comm, rank.stream()), SUCCESS);
    if (rank.rank == 1) EXPECT_EQ(receive(rank, taken, 0), SUCCESS);
    EXPECT_EQ(rank.nccl.group_end(), SUCCESS);
    rank.finish();
    EXPECT_EQ(sum, 3);
    if (rank.rank == 1) EXPECT_TRUE(taken == message(LARGE, 0, 1));
  });
}

TEST(StandInGroup, SeveralMessagesToOneRankKeepTheirOrder) {
  in_ranks(2, [](Rank& rank) {
    std::vector<int> first = rank.rank == 0 ? message(3, 0, 1) : std::vector<int>(3);
    std::vector<int> second = rank.rank == 0 ? message(LARGE, 5, 1) : std::vector<int>(LARGE);
    EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
    for (auto* const data : {&first, &second}) {
      EXPECT_EQ(rank.rank == 0 ? send(rank, *data, 1) : receive(rank, *data, 0), SUCCESS);
    }
    EXPECT_EQ(rank.nccl.group_end(), SUCCESS);
    rank.finish();
    EXPECT_TRUE(first == message(3, 0, 1));
    EXPECT_TRUE(second == message(LARGE, 5, 1));
  });
}

TEST(StandInGroup, AnErrorWithinIsTheGroups) {
  in_ranks(2, [](Rank& rank) {
    EXPECT_EQ(rank.nccl.group_end(), INVALID_USAGE);
    EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
    EXPECT_EQ(rank.nccl.group_end(), SUCCESS);  // an empty one
    Config blocking;
    blocking.blocking = 1;
    Comm comm = nullptr;
    ASSERT_EQ(rank.nccl.comm_init_rank_config(&comm, rank.size, rank.shared_id(), rank.rank, &blocking),
              SUCCESS);
    const auto other = rank.nccl.streams->make_stream(0);
    int value = 1;
    for (int peer : {2, 0}) {
      EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
      EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, comm, rank.stream()), SUCCESS);
      const Result expected = peer == 2 ? INVALID_ARGUMENT : INVALID_USAGE;
      void* const stream = peer == 2 ? rank.stream() : rank.nccl.streams->native_handle(other);
      EXPECT_EQ(rank.nccl.send(&value, 1, INT32, peer, comm, stream), expected);
      EXPECT_EQ(rank.nccl.group_end(), expected);
    }
    rank.finish();
    EXPECT_EQ(value, 1);  // nothing of the groups was started
    EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, comm, rank.stream()), SUCCESS);
    rank.finish();
    EXPECT_EQ(value, 2);
  });
}

TEST(StandInGroup, TwoCommunicatorsAtOnce) {
  in_ranks(2, [](Rank& rank) {
    const Comm first = rank.comm;
    ASSERT_EQ(rank.init(), SUCCESS);
    const Comm second = rank.comm;
    const auto given = message(LARGE, rank.rank, 1);
    std::vector<int> one(LARGE);
    std::vector<int> two(LARGE);
    EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
    for (const Comm comm : {rank.rank == 0 ? first : second, rank.rank == 0 ? second : first}) {
      rank.comm = comm;
      auto& taken = comm == first ? one : two;
      EXPECT_EQ(rank.rank == 0 ? send(rank, given, 1) : receive(rank, taken, 0), SUCCESS);
    }
    EXPECT_EQ(rank.nccl.group_end(), SUCCESS);
    rank.finish();
    if (rank.rank == 1) EXPECT_TRUE(one == message(LARGE, 0, 1));
    if (rank.rank == 1) EXPECT_TRUE(two == message(LARGE, 0, 1));
  });
}

TEST(StandInMessages, GoRoundInTheOrderOfTheStream) {
  in_ranks(3, [](Rank& rank) {
    const int next = (rank.rank + 1) % 3;
    const int previous = (rank.rank + 2) % 3;
    const auto given = message(LARGE, rank.rank, next);
    std::vector<int> taken(LARGE);
    std::vector<int> empty;
    if (rank.rank == 0) EXPECT_EQ(send(rank, given, next), SUCCESS);
    EXPECT_EQ(receive(rank, taken, previous), SUCCESS);
    if (rank.rank != 0) EXPECT_EQ(send(rank, given, next), SUCCESS);
    if (rank.rank == 0) EXPECT_EQ(send(rank, empty, next), SUCCESS);
    if (rank.rank == 1) EXPECT_EQ(receive(rank, empty, previous), SUCCESS);
    rank.finish();
    EXPECT_TRUE(taken == message(LARGE, previous, rank.rank));
  });
}

TEST(StandInMessages, ASendEndsWhenItIsTaken) {
  in_ranks(2, [](Rank& rank) {
    std::vector<int> data(1, rank.rank == 0 ? 7 : 0);
    if (rank.rank == 0) {
      EXPECT_EQ(send(rank, data, 1), SUCCESS);
      EXPECT_FALSE(rank.is_done_within(milliseconds(200)));
    }
    rank.all_ranks_here();
    if (rank.rank == 1) EXPECT_EQ(receive(rank, data, 0), SUCCESS);
    rank.finish();
    EXPECT_EQ(data[0], 7);
  });
}

TEST(StandInMessages, OfAnotherLengthNeverArrive) {
  in_ranks(2, [](Rank& rank) {
    std::vector<int> data(rank.rank == 0 ? 3 : 4);
    EXPECT_EQ(rank.rank == 0 ? send(rank, data, 1) : receive(rank, data, 0), SUCCESS);
    EXPECT_FALSE(rank.is_done_within(milliseconds(200)));
    EXPECT_EQ(rank.async_error(), SUCCESS);
    if (rank.rank == 1) {
      EXPECT_STREQ(rank.nccl.get_last_error(rank.comm),
                   "stand-in: rank 0 is in a message of 3 of type 2, operator 0, root 0; rank 1 is in a "
                   "message of 4 of type 2, "
                   "operator 0, root 0: this never ends");
    }
    EXPECT_EQ(rank.nccl.comm_abort(rank.comm), SUCCESS);
    EXPECT_TRUE(rank.is_done_within(milliseconds(1000)));
  });
}

}  // namespace
}  // namespace lockstep::nccl::stand_in
