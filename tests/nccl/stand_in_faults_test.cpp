// The stand-in for NCCL does wrong what it is told to, and only that.
#include <thread>

#include "tests/nccl/stand_in_ranks.h"

namespace lockstep::nccl::stand_in {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

Result all_reduce(const Rank& rank, int& value) {
  return rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, rank.stream());
}

// One that is right.
void expect_sum(const Rank& rank) {
  int value = rank.rank + 1;
  EXPECT_EQ(all_reduce(rank, value), SUCCESS);
  rank.finish();
  EXPECT_EQ(value, 3);
}

void expect_abort_ends_it(const Rank& rank) {
  EXPECT_FALSE(rank.is_done_within(milliseconds(200)));
  EXPECT_EQ(rank.nccl.comm_abort(rank.comm), SUCCESS);
  EXPECT_TRUE(rank.is_done_within(milliseconds(1000)));
}

TEST(StandInFaults, FailAtTheCall) {
  in_ranks(
      2,
      [](Rank& rank) {
        static int value = 1;
        expect_sum(rank);
        EXPECT_EQ(all_reduce(rank, value), rank.rank == 1 ? INTERNAL_ERROR : SUCCESS);
        if (rank.rank == 1) {
          EXPECT_STREQ(rank.nccl.get_last_error(rank.comm), "stand-in: told to fail in all_reduce 2");
          EXPECT_EQ(rank.async_error(), INTERNAL_ERROR);
          EXPECT_EQ(all_reduce(rank, value), INTERNAL_ERROR);
          EXPECT_EQ(rank.nccl.comm_abort(rank.comm), SUCCESS);
        } else {
          expect_abort_ends_it(rank);
        }
        ASSERT_EQ(rank.init(), SUCCESS);  // the counting goes on
        expect_sum(rank);
        expect_sum(rank);
      },
      "fail:all_reduce:2:1");
}

TEST(StandInFaults, FailWithinAGroup) {
  in_ranks(
      1,
      [](Rank& rank) {
        int value = 1;
        EXPECT_EQ(rank.nccl.group_start(), SUCCESS);
        EXPECT_EQ(rank.nccl.recv(&value, 1, INT32, 0, rank.comm, rank.stream()), SUCCESS);
        EXPECT_EQ(rank.nccl.send(&value, 1, INT32, 0, rank.comm, rank.stream()), INTERNAL_ERROR);
        EXPECT_EQ(rank.nccl.group_end(), INTERNAL_ERROR);
        EXPECT_TRUE(rank.is_done_within(milliseconds(1000)));
      },
      "fail:send:1");
}

TEST(StandInFaults, AsyncErrorAndHang) {
  in_ranks(
      2,
      [](Rank& rank) {
        static int value = 1;
        EXPECT_EQ(all_reduce(rank, value), SUCCESS);
        if (rank.rank == 0) {
          EXPECT_TRUE(comes_true([&] { return rank.async_error() == REMOTE_ERROR; }));
          EXPECT_STREQ(rank.nccl.get_last_error(rank.comm), "stand-in: told to fail in all_reduce 1");
        }
        expect_abort_ends_it(rank);
        ASSERT_EQ(rank.init(), SUCCESS);
        EXPECT_EQ(rank.nccl.broadcast(&value, &value, 1, INT32, 0, rank.comm, rank.stream()), SUCCESS);
        if (rank.rank == 1) EXPECT_FALSE(rank.is_done_within(milliseconds(200)));
        EXPECT_EQ(rank.async_error(), SUCCESS);
        expect_abort_ends_it(rank);
        EXPECT_EQ(value, 1);
      },
      "async:all_reduce:1:0,hang:broadcast:1:1");
}

TEST(StandInFaults, Late) {
  in_ranks(
      2,
      [](Rank& rank) {
        expect_sum(rank);
        rank.all_ranks_here();
        const auto begin = steady_clock::now();
        expect_sum(rank);
        EXPECT_GE(steady_clock::now() - begin, milliseconds(250));
      },
      "late:all_reduce:2:1:300");
}

TEST(StandInFaults, InProgressUntilItIsLaunched) {
  in_ranks(
      2,
      [](Rank& rank) {
        int value = rank.rank + 1;
        EXPECT_EQ(all_reduce(rank, value), IN_PROGRESS);
        EXPECT_EQ(rank.async_error(), IN_PROGRESS);
        EXPECT_EQ(all_reduce(rank, value), INVALID_ARGUMENT);
        EXPECT_EQ(rank.async_error(), IN_PROGRESS);
        rank.finish();  // there is nothing yet
        EXPECT_EQ(value, rank.rank + 1);
        EXPECT_EQ(rank.settled(), SUCCESS);
        rank.finish();
        EXPECT_EQ(value, 3);
        expect_sum(rank);
      },
      "progress:all_reduce:1");
}

TEST(StandInFaults, FailInInit) {
  for (const int blocking : {0, 1}) {
    without_comm(
        2,
        [blocking](Rank& rank) {
          if (rank.rank == 0) {
            Config config;
            EXPECT_EQ(rank.nccl.comm_init_rank_config(&rank.comm, 2, rank.shared_id(), 0, &config),
                      IN_PROGRESS);
            std::this_thread::sleep_for(milliseconds(200));
            EXPECT_EQ(rank.async_error(), IN_PROGRESS);
          } else {
            EXPECT_EQ(rank.init(blocking), SYSTEM_ERROR);
            EXPECT_STREQ(rank.nccl.get_last_error(rank.comm), "stand-in: told to fail in init");
            EXPECT_EQ(rank.comm == nullptr, blocking == 1);
          }
        },
        "init:fail:1");
  }
}

TEST(StandInFaults, HangInInit) {
  without_comm(
      2,
      [](Rank& rank) {
        Config config;
        EXPECT_EQ(rank.nccl.comm_init_rank_config(&rank.comm, 2, rank.shared_id(), rank.rank, &config),
                  IN_PROGRESS);
        std::this_thread::sleep_for(milliseconds(200));
        EXPECT_EQ(rank.async_error(), IN_PROGRESS);
        EXPECT_EQ(rank.nccl.comm_abort(rank.comm), SUCCESS);
      },
      "init:hang:1");
}

TEST(StandInFaults, AnotherCountAndVersion) {
  without_comm(1, [](Rank& rank) {
    int version = 0;
    EXPECT_EQ(rank.nccl.get_version(&version), SUCCESS);
    EXPECT_EQ(version, 22105);
    setenv("NCCL_STAND_IN", "count:3,version:21000", 1);
    EXPECT_EQ(rank.nccl.get_version(&version), SUCCESS);
    EXPECT_EQ(version, 21000);
    ASSERT_EQ(rank.init(), SUCCESS);
    int count = 0;
    EXPECT_EQ(rank.nccl.comm_count(rank.comm, &count), SUCCESS);
    EXPECT_EQ(count, 3);
    setenv("NCCL_STAND_IN", "nonsense", 1);
    UniqueId id;
    EXPECT_EQ(rank.nccl.get_version(&version), INVALID_USAGE);
    EXPECT_EQ(rank.nccl.get_unique_id(&id), INVALID_USAGE);
    EXPECT_THAT(rank.nccl.get_last_error(nullptr), HasSubstr("\"nonsense\" is no order"));
  });
}

}  // namespace
}  // namespace lockstep::nccl::stand_in
