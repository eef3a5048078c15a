// Making, aborting and ending communicators of the stand-in for NCCL, and what it says about itself.
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>

#include "tests/nccl/stand_in_ranks.h"

namespace lockstep::nccl::stand_in {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

int open_files() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.is_symlink();
  return count;
}

// Makes rank.comm without waiting for anybody.
Result begin(Rank& rank, int size, const UniqueId& id, int number) {
  Config config;
  return rank.nccl.comm_init_rank_config(&rank.comm, size, id, number, &config);
}

TEST(StandInComm, BlockingOrNot) {
  for (const int blocking : {0, 1}) {
    without_comm(3, [blocking](Rank& rank) {
      const int files = open_files();
      ASSERT_EQ(rank.init(blocking), SUCCESS);
      EXPECT_EQ(open_files(), files);
      int count = 0;
      int number = -1;
      EXPECT_EQ(rank.nccl.comm_count(rank.comm, &count), SUCCESS);
      EXPECT_EQ(rank.nccl.comm_user_rank(rank.comm, &number), SUCCESS);
      EXPECT_EQ(count, 3);
      EXPECT_EQ(number, rank.rank);
      EXPECT_STREQ(rank.nccl.get_last_error(rank.comm), "");
      EXPECT_EQ(rank.nccl.comm_destroy(rank.comm), SUCCESS);
      EXPECT_EQ(rank.nccl.comm_destroy(rank.comm), INVALID_ARGUMENT);
      EXPECT_EQ(rank.nccl.comm_count(rank.comm, &count), INVALID_ARGUMENT);
      EXPECT_EQ(rank.nccl.comm_destroy(nullptr), SUCCESS);
    });
  }
}

TEST(StandInComm, ARankThatNeverComesIsWaitedForUntilAbort) {
  without_comm(2, [](Rank& rank) {
    const UniqueId id = rank.shared_id();
    if (rank.rank == 1) return;
    const int files = open_files();
    EXPECT_EQ(begin(rank, 2, id, 0), IN_PROGRESS);
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_EQ(rank.async_error(), IN_PROGRESS);
    int count = 0;
    EXPECT_EQ(rank.nccl.comm_count(rank.comm, &count), INVALID_ARGUMENT);  // not before it is there
    EXPECT_THAT(rank.nccl.get_last_error(rank.comm),
                HasSubstr("before the previous operation returned ncclSuccess"));
    EXPECT_EQ(rank.nccl.comm_abort(rank.comm), SUCCESS);
    EXPECT_EQ(rank.nccl.comm_abort(rank.comm), INVALID_ARGUMENT);
    EXPECT_TRUE(comes_true([&] { return open_files() == files - 1; }));  // the id's
  });
}

TEST(StandInComm, WhoContradictsIsToldAndSoAreTheOthers) {
  without_comm(2, [](Rank& rank) {
    const UniqueId id = rank.shared_id();
    EXPECT_EQ(begin(rank, 2 + rank.rank, id, rank.rank), IN_PROGRESS);  // of 2, and of 3
    EXPECT_EQ(rank.settled(), INVALID_USAGE);
    const UniqueId other_id = rank.shared_id();
    EXPECT_EQ(begin(rank, 3, other_id, 1), IN_PROGRESS);  // both rank 1
    EXPECT_EQ(rank.settled(), INVALID_USAGE);
  });
}

TEST(StandInComm, WrongArgumentsAreRefused) {
  without_comm(1, [](Rank& rank) {
    const UniqueId id = rank.shared_id();
    for (const auto& [size, number] :
         {std::pair(0, 0), std::pair(2, 2), std::pair(2, -1), std::pair(65, 0)}) {
      EXPECT_EQ(begin(rank, size, id, number), INVALID_ARGUMENT);
    }
    Config config;
    config.magic = 1;
    EXPECT_EQ(rank.nccl.comm_init_rank_config(&rank.comm, 1, id, 0, &config), INVALID_ARGUMENT);
    config = {};
    config.blocking = 2;
    EXPECT_EQ(rank.nccl.comm_init_rank_config(&rank.comm, 1, id, 0, &config), INVALID_ARGUMENT);
    EXPECT_EQ(rank.nccl.comm_init_rank_config(&rank.comm, 1, UniqueId{}, 0, nullptr), INVALID_ARGUMENT);
    EXPECT_EQ(rank.comm, nullptr);
    EXPECT_THAT(rank.nccl.get_last_error(nullptr), HasSubstr("unique id"));
    EXPECT_EQ(rank.nccl.comm_init_rank_config(&rank.comm, 1, id, 0, nullptr), SUCCESS);
    EXPECT_EQ(rank.nccl.comm_init_rank_config(&rank.comm, 1, id, 0, nullptr),
              REMOTE_ERROR);  // an id is of one communicator
    EXPECT_EQ(rank.nccl.get_unique_id(nullptr), INVALID_ARGUMENT);
    EXPECT_EQ(rank.nccl.get_version(nullptr), INVALID_ARGUMENT);
  });
}

TEST(StandInComm, WrongArgumentsOfACallEndACommunicatorThatIsNotBlocking) {
  without_comm(2, [](Rank& rank) {
    int value = 1;
    const auto& nccl = rank.nccl;
    for (const int blocking : {1, 0}) {
      ASSERT_EQ(rank.init(blocking), SUCCESS);
      EXPECT_EQ(nccl.all_reduce(&value, nullptr, 1, INT32, SUM, rank.comm, rank.stream()), INVALID_ARGUMENT);
      EXPECT_STREQ(nccl.get_last_error(rank.comm), "all_reduce: recvbuff is null");
      EXPECT_EQ(rank.async_error(), blocking == 1 ? SUCCESS : INVALID_ARGUMENT);
      EXPECT_EQ(nccl.comm_destroy(rank.comm), blocking == 1 ? SUCCESS : INVALID_ARGUMENT);
    }
    EXPECT_EQ(nccl.comm_abort(rank.comm), SUCCESS);
    ASSERT_EQ(rank.init(1), SUCCESS);
    const auto type = static_cast<DataType>(10);
    const auto op = static_cast<RedOp>(5);
    EXPECT_EQ(nccl.broadcast(&value, &value, 1, type, 0, rank.comm, rank.stream()), INVALID_ARGUMENT);
    EXPECT_EQ(nccl.reduce_scatter(&value, &value, 1, INT32, op, rank.comm, rank.stream()), INVALID_ARGUMENT);
    EXPECT_EQ(nccl.broadcast(&value, &value, 1, INT32, 2, rank.comm, rank.stream()), INVALID_ARGUMENT);
    EXPECT_EQ(nccl.recv(&value, 1, INT32, -1, rank.comm, rank.stream()), INVALID_ARGUMENT);
    EXPECT_EQ(nccl.send(nullptr, 1, INT32, 0, rank.comm, rank.stream()), INVALID_ARGUMENT);
    EXPECT_EQ(nccl.all_gather(&value, &value, 1, INT32, nullptr, rank.stream()), INVALID_ARGUMENT);
    EXPECT_EQ(rank.async_error(), SUCCESS);
  });
}

TEST(StandInComm, AbortEndsWhatIsUnderWayAndWhatIsBehindIt) {
  in_ranks(2, [](Rank& rank) {
    if (rank.rank == 1) return;  // and ends
    std::array<int, 2> values{5, 5};
    for (int& value : values) {
      EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, rank.stream()), SUCCESS);
    }
    EXPECT_FALSE(rank.is_done_within(milliseconds(200)));
    EXPECT_EQ(rank.async_error(), SUCCESS);
    const auto begin_of_abort = steady_clock::now();
    std::thread([&] { EXPECT_EQ(rank.nccl.comm_abort(rank.comm), SUCCESS); }).join();
    EXPECT_TRUE(rank.is_done_within(milliseconds(1000)));
    EXPECT_LT(steady_clock::now() - begin_of_abort, milliseconds(1000));
    EXPECT_EQ(values[0] + values[1], 10);
    EXPECT_EQ(rank.nccl.all_reduce(&values[0], &values[0], 1, INT32, SUM, rank.comm, rank.stream()),
              INVALID_ARGUMENT);
  });
}

TEST(StandInComm, AbortOfOneLeavesAnotherAlone) {
  in_ranks(2, [](Rank& rank) {
    const Comm stuck = rank.comm;
    ASSERT_EQ(rank.init(), SUCCESS);
    int value = rank.rank + 1;
    int never = 0;
    EXPECT_EQ(rank.nccl.recv(&never, 1, INT32, 1 - rank.rank, stuck, rank.stream()), SUCCESS);
    EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, rank.stream()), SUCCESS);
    EXPECT_FALSE(rank.is_done_within(milliseconds(100)));
    EXPECT_EQ(rank.nccl.comm_abort(stuck), SUCCESS);
    rank.finish();
    EXPECT_EQ(value, 3);
  });
}

TEST(StandInComm, DestroyDoesNotWaitAndTakesNothingAway) {
  in_ranks(2, [](Rank& rank) {
    int value = rank.rank + 1;
    if (rank.rank == 1) rank.all_ranks_here();
    EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, rank.stream()), SUCCESS);
    EXPECT_EQ(rank.nccl.comm_destroy(rank.comm), SUCCESS);
    if (rank.rank == 0) rank.all_ranks_here();
    rank.finish();
    EXPECT_EQ(value, 3);
  });
}

// Rank 0's part of a broadcast has ended before rank 1 comes, and then rank 0 ends its communicator.
void send_and_end(Rank& rank, const std::function<void(const int& value)>& end) {
  int value = rank.rank + 1;
  if (rank.rank == 1) rank.all_ranks_here();
  EXPECT_EQ(rank.nccl.broadcast(&value, &value, 1, INT32, 0, rank.comm, rank.stream()), SUCCESS);
  if (rank.rank == 0) rank.finish();
  end(value);
}

TEST(StandInComm, FinalizeEndsWhenWhatWasSentIsTaken) {
  const auto body = [](Rank& rank) {
    send_and_end(rank, [&](const int& value) {
      if (rank.rank == 1) {
        rank.finish();
        EXPECT_EQ(value, 1);
        return;
      }
      EXPECT_EQ(rank.nccl.comm_finalize(rank.comm), IN_PROGRESS);
      EXPECT_EQ(rank.async_error(), IN_PROGRESS);
      rank.all_ranks_here();
      EXPECT_EQ(rank.settled(), SUCCESS);
      EXPECT_EQ(rank.nccl.comm_destroy(rank.comm), SUCCESS);
    });
  };
  in_ranks(2, body, "network");
}

TEST(StandInComm, AbortLosesWhatWasSent) {
  const auto body = [](Rank& rank) {
    send_and_end(rank, [&](const int& /*value*/) {
      if (rank.rank == 0) {
        EXPECT_EQ(rank.nccl.comm_abort(rank.comm), SUCCESS);
        return rank.all_ranks_here();
      }
      EXPECT_TRUE(comes_true([&] { return rank.async_error() == REMOTE_ERROR; }));
      EXPECT_FALSE(rank.is_done_within(milliseconds(50)));
      EXPECT_EQ(rank.nccl.comm_abort(rank.comm), SUCCESS);
    });
  };
  in_ranks(2, body, "network");
}

// in_ranks() fails if a rank does not end: this one leaves with a collective that nobody joins.
TEST(StandInComm, AProcessEndsWithACollectiveUnderWay) {
  in_ranks(2, [](Rank& rank) {
    if (rank.rank == 1) return;
    static int value = 1;
    EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, rank.stream()), SUCCESS);
    EXPECT_FALSE(rank.is_done_within(milliseconds(50)));
  });
}

TEST(StandInComm, ADeadMakerOfAnIdIsAnError) {
  without_comm(2, [](Rank& rank) {
    const UniqueId id = rank.shared_id();
    if (rank.rank == 0) return;
    int dead = 0;
    std::memcpy(&dead, id.internal + 16, sizeof(dead));  // the pid in it
    // Of a process that has ended and is not waited for, an ordinary user may not read this: an error, too.
    std::error_code error;
    EXPECT_TRUE(comes_true(
        [&] { return !std::filesystem::exists("/proc/" + std::to_string(dead) + "/fd/0", error); }));
    EXPECT_EQ(begin(rank, 2, id, 1), IN_PROGRESS);
    EXPECT_EQ(rank.settled(), REMOTE_ERROR);
    EXPECT_THAT(rank.nccl.get_last_error(rank.comm), HasSubstr("is gone"));
  });
}

TEST(StandInComm, ErrorsInNcclsWords) {
  without_comm(1, [](Rank& rank) {
    const auto text = rank.nccl.get_error_string;
    EXPECT_STREQ(text(SUCCESS), "no error");
    EXPECT_STREQ(text(UNHANDLED_CUDA_ERROR), "unhandled cuda error (run with NCCL_DEBUG=INFO for details)");
    EXPECT_STREQ(text(SYSTEM_ERROR), "unhandled system error (run with NCCL_DEBUG=INFO for details)");
    EXPECT_STREQ(text(INTERNAL_ERROR), "internal error - please report this issue to the NCCL developers");
    EXPECT_STREQ(text(INVALID_ARGUMENT), "invalid argument (run with NCCL_DEBUG=WARN for details)");
    EXPECT_STREQ(text(INVALID_USAGE), "invalid usage (run with NCCL_DEBUG=WARN for details)");
    EXPECT_STREQ(text(REMOTE_ERROR), "remote process exited or there was a network error");
    EXPECT_STREQ(text(IN_PROGRESS), "NCCL operation in progress");
    EXPECT_STREQ(text(static_cast<Result>(8)), "unknown result code");
  });
}

// What one rank prints while it makes and uses a communicator.
void expect_output(const char* level, const std::string& regex) {
  without_comm(1, [&](Rank& rank) {
    if (level == nullptr) {
      unsetenv("NCCL_DEBUG");
    } else {
      setenv("NCCL_DEBUG", level, 1);
    }
    ::testing::internal::CaptureStdout();
    const Result result = rank.init(1);
    int value = 1;
    rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, nullptr);
    EXPECT_THAT(::testing::internal::GetCapturedStdout(), MatchesRegex(regex));
    EXPECT_EQ(result, SUCCESS);
  });
}

TEST(StandInComm, SaysWhatItDoesOnlyIfAsked) {
  expect_output(
      "INFO",
      "[^ ]+:[0-9]+:[0-9]+ \\[0\\] NCCL INFO NCCL version 2\\.21\\.5 \\(stand-in over host memory\\)\n"
      "[^ ]+:[0-9]+:[0-9]+ \\[0\\] NCCL INFO comm 0x[0-9a-f]+ rank 0 nranks 1 - Init COMPLETE\n");
  expect_output("WARN", "");
  expect_output(nullptr, "");
}

}  // namespace
}  // namespace lockstep::nccl::stand_in
