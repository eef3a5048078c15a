// Many operations in flight: waited for in any order, polled, dropped, mixed.
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/os/process_handle.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The sum over the ranks if rank r gives r + shift.
float sum_of_ranks(int size, int shift) { return static_cast<float>(size * (size - 1) / 2 + size * shift); }

RANKS_TEST(Async, TwoHundredPendingWaitedForBackwards, Ranks(1, 2, 3, 4), EveryBackend()) {
  std::vector<std::vector<float>> data;
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) data.emplace_back(37 * i, static_cast<float>(rank() + i));
  for (auto& x : data)
    works.push_back(comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true));
  for (; !works.empty(); works.pop_back()) works.back().wait();
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(all_are(data[static_cast<std::size_t>(i)], sum_of_ranks(size(), i)));
}

// Later calls on the group complete an operation whose Work was dropped. The barrier comes after all of them.
RANKS_TEST(Async, DroppedWorksCompleteAnyway, Ranks(1, 2, 3, 4), EveryBackend()) {
  std::vector<std::vector<float>> data;
  for (int i = 0; i < 150; ++i) data.emplace_back(1000 + i, static_cast<float>(rank() + i));
  for (auto& x : data) comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  Work last = comm::all_reduce(world(), std::span<float>(), ReduceOp::SUM, /*async_op=*/true);
  last.wait();
  comm::barrier(world());
  for (int i = 0; i < 150; ++i)
    ASSERT_TRUE(all_are(data[static_cast<std::size_t>(i)], sum_of_ranks(size(), i))) << i;
}

RANKS_TEST(Async, PollingCompletesAnOperation, Ranks(1, 2, 3, 4), EveryBackend()) {
  std::vector<float> x(100003, static_cast<float>(rank()));
  const Work work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  while (!work.is_completed()) {
  }
  EXPECT_TRUE(work.is_success());
  EXPECT_EQ(work.exception(), nullptr);
  EXPECT_TRUE(all_are(x, sum_of_ranks(size(), 0)));
}

RANKS_TEST(Async, WaitingTwiceAndThroughACopyIsHarmless, Ranks(1, 3), EveryBackend()) {
  std::vector<float> x(10, 1);
  Work work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  Work copy = work;
  work.wait();
  work.wait();
  copy.wait();
  EXPECT_TRUE(copy.is_completed());
  EXPECT_THAT(x, Each(static_cast<float>(size())));
  Work().wait();
}

// One call of each verb in flight at once, waited for in an order that differs from rank to rank.
RANKS_TEST(Async, MixedVerbs, Ranks(2, 3, 4), BackendsWithPeers()) {
  for (int round = 0; round < 50; ++round) {
    const int root = round % size();
    const int next = (rank() + 1) % size();
    const int before = (rank() + size() - 1) % size();
    std::vector<float> reduced(3000, static_cast<float>(rank()));
    std::vector<int> cast(500, rank() == root ? round : -1);
    const std::vector<int> mine(static_cast<std::size_t>(rank()) * 100 + 1, rank());
    std::vector<std::vector<int>> gathered;
    std::vector<std::span<int>> outputs;
    gathered.reserve(static_cast<std::size_t>(size()));
    for (int r = 0; r < size(); ++r) outputs.emplace_back(gathered.emplace_back(100 * r + 1, -1));
    const std::vector<int> letter(77, rank());
    std::vector<int> received(77, -1);
    std::vector<Work> works;
    works.push_back(comm::irecv(world(), std::span(received), before));
    works.push_back(comm::all_reduce(world(), std::span(reduced), ReduceOp::SUM, /*async_op=*/true));
    works.push_back(comm::barrier(world(), /*async_op=*/true));
    works.push_back(comm::isend(world(), std::span<const int>(letter), next));
    works.push_back(comm::broadcast(world(), std::span(cast), root, /*async_op=*/true));
    works.push_back(comm::all_gather(world(), std::span<const int>(mine), outputs, /*async_op=*/true));
    std::rotate(works.begin(), works.begin() + (rank() + round) % 6, works.end());
    for (Work& work : works) work.wait();
    ASSERT_TRUE(all_are(reduced, sum_of_ranks(size(), 0)));
    ASSERT_TRUE(all_are(cast, round));
    ASSERT_TRUE(all_are(received, before));
    for (int r = 0; r < size(); ++r) ASSERT_TRUE(all_are(gathered[static_cast<std::size_t>(r)], r));
  }
}

// One rank is slow. The other ranks post more calls than there are slots, and no call overtakes another.
RANKS_TEST(Async, OneRankFarBehind, Ranks(2, 4), BackendsWithPeers()) {
  std::vector<std::vector<int>> data(300, std::vector<int>(200, 1));
  std::vector<Work> works;
  int token = 0;
  if (rank() == 0)
    comm::recv(world(), std::span(&token, 1), 1);  // rank 1 has posted as many calls as it may by now
  for (auto& x : data) {
    works.push_back(comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true));
    if (rank() == 1 && works.size() == 60) comm::send(world(), std::span<const int>(&token, 1), 0);
  }
  for (Work& work : works) work.wait();
  for (const auto& x : data) ASSERT_TRUE(all_are(x, size()));
}

RANKS_TEST(Async, WhatOwnsABufferLivesUntilTheWorkIsDone, Ranks(2, 3), BackendsWithPeers()) {
  auto owner = std::make_shared<std::vector<float>>(5000, static_cast<float>(rank()));
  const std::weak_ptr<std::vector<float>> watch = owner;
  int token = 0;
  if (rank() != 0) comm::recv(world(), std::span(&token, 1), 0);  // rank 0 posts first
  Work work =
      comm::all_reduce(world(), owner->data(), owner->size(), DType::FLOAT32, ReduceOp::SUM, true, owner);
  owner.reset();
  EXPECT_TRUE(rank() != 0 || !watch.expired());
  for (int r = 1; r < size() && rank() == 0; ++r) comm::send(world(), std::span<const int>(&token, 1), r);
  work.wait();
  EXPECT_TRUE(watch.expired());
}

RANKS_TEST(Async, CallsAfterCloseAreRefused, Ranks(1, 2), EveryBackend()) {
  comm::barrier(world());
  world().close();
  std::vector<float> x(3);
  EXPECT_THAT([&] { comm::all_reduce(world(), std::span(x)); },
              ThrowsMessage<Aborted>(HasSubstr("left the group")));
  EXPECT_THAT([&] { comm::barrier(world(), /*async_op=*/true); },
              ThrowsMessage<Aborted>(HasSubstr("left the group")));
}

// Over hierarchical+nccl a rank may still make the group then, over TCP; the test NcclLevels covers it.
RANKS_TEST(Async, AbortReachesEveryRankWithItsReason, Ranks(1, 2, 3, 4), EveryBackend(),
           Except("hierarchical+nccl")) {
  std::vector<float> x(3);
  if (rank() == size() - 1) world().abort("the loss is not a number");
  const auto use = [&] {
    while (true) comm::barrier(world());
  };
  EXPECT_THAT(use, ThrowsMessage<Aborted>(HasSubstr("the loss is not a number")));
  EXPECT_THAT([&] { comm::all_reduce(world(), std::span(x)); },
              ThrowsMessage<Aborted>(HasSubstr(str("rank ", size() - 1, " aborted the group"))));
}

// An error of one rank ends the call on all ranks, so that none waits for that rank's part. The failed rank
// need not leave.
RANKS_TEST(Async, AnErrorOfOneRankAloneIsToldToAll, Ranks(2, 3, 4), BackendsWithPeers(), Except("thread"),
           Variable("LOCKSTEP_FAIL_POINT", "comm.before_finish@1+8=throw")) {
  const auto work = [&] {
    std::vector<float> x(100003, 1);
    while (true) comm::all_reduce(world(), std::span(x));
  };
  if (rank() == 1) EXPECT_THAT(work, ThrowsMessage<InternalError>(HasSubstr("was asked to throw")));
  EXPECT_THAT(work, ThrowsMessage<Aborted>(
                        AllOf(HasSubstr("rank 1 gave up all_reduce #"), HasSubstr("was asked to throw"))));
}

// Rank 1 is stopped in its barrier when all have come. Rank 0 continues, and aborts before rank 1 has noticed
// that the barrier is complete.
RANKS_TEST(Async, WhatIsCompleteIsNotUndoneByAnAbort, Ranks(2),
           Variable("LOCKSTEP_FAIL_POINT", "comm.posted@1+1=stop")) {
  pid_t pid = getpid();
  comm::broadcast(world(), std::span(&pid, 1), 1);
  comm::barrier(world());
  if (rank() == 1) return;
  world().abort("enough");
  const ProcessHandle other(pid);
  while (other.state() != 'T') std::this_thread::yield();
  kill(pid, SIGCONT);
}

// If a rank leaves, only the ranks that still need it get an error.
RANKS_TEST(Async, LeavingIsAnErrorForThoseWhoNeedThisRankOnly, Ranks(3), BackendsWithPeers()) {
  std::vector<float> x(10, 1);
  comm::all_reduce(world(), std::span(x));
  if (rank() == 2) return world().close();
  int token = rank();
  for (int i = 0; i < 100; ++i) {
    if (rank() == 0) comm::send(world(), std::span<const int>(&token, 1), 1);
    if (rank() == 1) comm::recv(world(), std::span(&token, 1), 0);
  }
  const auto missed = ThrowsMessage<PeerLost>(HasSubstr("rank 2"));
  if (rank() == 0) {
    comm::recv(world(), std::span(&token, 1), 1);  // rank 1 has received everything before the group fails
    EXPECT_THAT([&] { comm::all_reduce(world(), std::span(x)); }, missed);
  } else {
    comm::send(world(), std::span<const int>(&token, 1), 0);
    EXPECT_THAT([&] { comm::recv(world(), std::span(&token, 1), 0); }, missed);
  }
}

RANKS_TEST(Async, AnUnfinishedOperationTimesOutAndNamesTheRank, Ranks(2, 3), BackendsWithPeers()) {
  std::vector<float> x(10, 1);
  comm::all_reduce(world(), std::span(x));
  if (rank() == 1) {
    // Waits until the other ranks have given up. Their next call after the failure closes nothing, so this
    // call must see the failure itself.
    EXPECT_THAT([&] { comm::recv(world(), std::span(x), 0); },
                ThrowsMessage<Timeout>(HasSubstr("waiting for rank 1")));
    return;
  }
  Work work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  EXPECT_THAT(
      [&] { work.wait(std::chrono::milliseconds(50)); },
      ThrowsMessage<Timeout>(::testing::AllOf(HasSubstr("all_reduce #2"), HasSubstr("waiting for rank 1"))));
  EXPECT_NE(work.exception(), nullptr);
  EXPECT_FALSE(work.is_success());
}

// Rank 0 has sent its half of the broadcast to rank 2 and waits for rank 1 in its next call. Rank 1, still in
// the broadcast, waits for rank 3, which is the rank to name.
RANKS_TEST(Async, ATimeoutNamesTheRankAtTheEndOfTheChain, Ranks(4), Backends("hierarchical")) {
  std::vector<float> x(100000, 1);
  const auto names_it = ThrowsMessage<Timeout>(HasSubstr("rank 3 (pid "));
  if (rank() == 3) {
    EXPECT_THAT([&] { comm::recv(world(), std::span(x), 0); }, names_it);
    return;
  }
  EXPECT_THAT(
      [&] {
        comm::broadcast(world(), std::span(x), 0);
        Work work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
        work.wait(rank() == 0 ? std::chrono::seconds(1) : std::chrono::minutes(10));
      },
      names_it);
}

}  // namespace
}  // namespace lockstep
