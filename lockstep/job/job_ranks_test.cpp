#include "lockstep/job/job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/groups.h"
#include "lockstep/os/process.h"
#include "lockstep/os/process_table.h"
#include "testing/ranks.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::sum_of_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

RANKS_TEST(Job, TellsEveryRankItsPlace, Ranks(1, 2, 3, 4), WithoutGroup()) {
  EXPECT_FALSE(is_initialized());
  init_process_group();
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(get_rank(), rank());
  EXPECT_EQ(get_world_size(), size());
  EXPECT_EQ(get_local_rank(), rank());
  EXPECT_EQ(get_local_world_size(), size());
  EXPECT_EQ(get_node_rank(), 0);
  EXPECT_EQ(get_node_count(), 1);
  EXPECT_EQ(get_backend(), size() == 1 ? "self" : "shm");
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
}

RANKS_TEST(Job, RefusesToBeInitialisedTwice, Ranks(1, 2), WithoutGroup()) {
  init_process_group();
  EXPECT_THAT([] { init_process_group(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("call destroy_process_group() first")));
  destroy_process_group();
  EXPECT_THROW(destroy_process_group(), InvalidArgument);
  EXPECT_THROW(get_rank(), InvalidArgument);
}

RANKS_TEST(Job, StartsAnewWithoutGrowth, Ranks(1, 3), WithoutGroup()) {
  init_process_group();
  destroy_process_group();
  const auto descriptors = open_descriptors();
  for (int round = 0; round < 100; ++round) {
    init_process_group();
    ASSERT_EQ(sum_of_ranks(), size() * (size() - 1) / 2) << "round " << round;
    destroy_process_group();
  }
  EXPECT_LE(open_descriptors(), descriptors);  // a socket of the start may have closed since
}

// A wrapper keeps its group, and a program that has called MPI itself may call MPI_Finalize next.
RANKS_TEST(Job, LeavesNoThreadInAGroupThatIsStillHeld, Ranks(2, 3, 4), WithoutGroup()) {
  constexpr std::chrono::seconds PATIENCE{60};
  init_process_group("tcp");
  const std::vector<ProcessGroup> held = {lockstep::world(), new_group()};
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
  const auto threads = numbers_in("/proc/self/task").size();
  destroy_process_group(held[1]);
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);  // the world goes on
  EXPECT_EQ(numbers_in("/proc/self/task").size(), threads);
  destroy_process_group();
  // A thread that has left its function is in the list for a moment.
  const Deadline deadline = Deadline::in(PATIENCE);
  while (numbers_in("/proc/self/task").size() == threads && !deadline.expired()) std::this_thread::yield();
  EXPECT_EQ(numbers_in("/proc/self/task").size(), threads - 1);
}

RANKS_TEST(Job, MeetsWithoutLauncherInThePrivateFolder, Ranks(2, 4), WithoutGroup()) {
  init_process_group("shm", {.rank = rank(), .world_size = size()});
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
  destroy_process_group();
  init_process_group("auto", {.rank = size() - 1 - rank(), .world_size = size()});
  EXPECT_EQ(get_rank(), size() - 1 - rank());
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
}

RANKS_TEST(Job, ANamedRankIsMissing, Ranks(2), WithoutGroup()) {
  if (rank() == 1) return;  // takes no part
  EXPECT_THAT(
      [] {
        init_process_group("shm", {.rank = 0, .world_size = 3, .timeout = std::chrono::milliseconds(100)});
      },
      ThrowsMessage<Timeout>(HasSubstr("rank(s) 1, 2 did not come before the timeout")));
}

RANKS_TEST(Job, ARankThatLeftIsNamed, Ranks(3), WithoutGroup()) {
  init_process_group();
  comm::barrier(lockstep::world());
  if (rank() == 2) {
    destroy_process_group();
    return;
  }
  EXPECT_THAT([] { comm::barrier(lockstep::world()); },
              ThrowsMessage<PeerLost>(
                  AllOf(HasSubstr("barrier #2"), HasSubstr("rank 2 (pid"), HasSubstr("has left the group"))));
}

RANKS_TEST(Job, WhatALeavingRankHasDoneStaysDone, Ranks(2), WithoutGroup()) {
  init_process_group();
  int value = 41 + rank();
  Work work = comm::broadcast(lockstep::world(), std::span(&value, 1), 0, /*async_op=*/true);
  if (rank() == 0) destroy_process_group();
  if (rank() == 1) {
    work.wait();
    EXPECT_EQ(value, 41);
  }
}

// A fork may not call, and the group does not notice when it leaves. A call with memory that may be a
// device's differs from a barrier.
RANKS_TEST(Job, AForkIsNotARank, Ranks(1, 2, 4), EveryBackend(), Except("self", "thread", "mpi")) {
  int sum = 1;
  comm::all_reduce(world(), std::span(&sum, 1));
  const pid_t child = fork();
  if (child == 0) {
    const auto throws_aborted = [](const auto& call) {
      try {
        call();
      } catch (const Aborted& error) {
        return std::string_view(error.what()).find("is a fork of") != std::string_view::npos;
      }
      return false;
    };
    const bool refused = throws_aborted([&] { comm::barrier(world()); }) &&
                         throws_aborted([&] { comm::all_reduce(world(), std::span(&sum, 1)); });
    world().abort("a fork's wish");
    destroy_process_group();
    _exit(refused ? 17 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 17);
  comm::all_reduce(world(), std::span(&sum, 1));
  EXPECT_EQ(sum, size() * size());
}

RANKS_TEST(Job, RefusesWhatItDoesNotKnow, Ranks(1, 2), WithoutGroup()) {
  EXPECT_THAT([] { init_process_group("ucc"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"ucc\""), HasSubstr("auto, self, shm"))));
  EXPECT_THAT([] { init_process_group("shm", {.rank = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("both rank and world_size")));
  EXPECT_THAT([] { init_process_group("shm", {.rank = 2, .world_size = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 2 does not fit world_size 2")));
  EXPECT_THAT([] { init_process_group("shm", {.init_method = "etcd://a:1", .rank = 0, .world_size = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("etcd://a:1")));
}

RANKS_TEST(Job, AbortReachesEveryRank, Ranks(3)) {
  if (rank() == 1) world().abort("the loss is not a number");
  EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<Aborted>(HasSubstr("the loss is not a number")));
  EXPECT_THROW(comm::barrier(world()), Aborted);
}

}  // namespace
}  // namespace lockstep
