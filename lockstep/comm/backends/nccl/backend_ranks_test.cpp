// Backend nccl over the stand-in for NCCL (tests/nccl): what the suite of all backends does not ask.
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/coalesced.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/comm/trace/rank_trace.h"
#include "lockstep/comm/trace/trace_analysis.h"
#include "lockstep/job/job.h"
#include "lockstep/os/process.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Whoever calls first returns at once: the other rank calls only when it was told so, by the rank that has
// returned.
RANKS_TEST(Nccl, ACallWaitsForNobody, Ranks(2), Backends("nccl")) {
  std::vector<float> x(1000, 1.0F);
  Work work;
  if (rank() == 0) work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  if (rank() == 0) EXPECT_FALSE(work.is_completed());
  comm::barrier(world());
  if (rank() == 1) work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  work.wait();
  EXPECT_THAT(x, Each(2.0F));
}

// Each sends before it receives, in a ring, and nobody names a group.
RANKS_TEST(Nccl, MessagesThatWaitForEachOther, Ranks(2, 3), Backends("nccl")) {
  constexpr std::size_t COUNT = 1 << 20;
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  for (int round = 0; round < 5; ++round) {
    const std::vector<int> mine(COUNT, 10 * round + rank());
    std::vector<int> theirs(COUNT);
    Work sent = comm::isend(world(), std::span<const int>(mine), next);
    Work received = comm::irecv(world(), std::span(theirs), previous);
    received.wait();
    EXPECT_EQ(received.source_rank(), previous);
    sent.wait();
    EXPECT_THAT(theirs, Each(10 * round + previous));
  }
}

RANKS_TEST(Nccl, MessagesAndCollectivesDoNotWaitForEachOther, Ranks(2), Backends("nccl")) {
  std::vector<int> message(1 << 20, rank());
  std::vector<int> sum(1000, rank() + 1);
  Work work = rank() == 0 ? comm::isend(world(), std::span<const int>(message), 1)
                          : comm::irecv(world(), std::span(message), 0);
  if (rank() == 0) work.wait();  // launched here before the sum, on the other rank behind it
  comm::all_reduce(world(), std::span(sum));
  work.wait();
  EXPECT_THAT(sum, Each(3));
  EXPECT_THAT(message, Each(0));
}

RANKS_TEST(Nccl, IsOfItsRanksAndHasTheCpusGroupBeside, Ranks(2, 3), Backends("nccl")) {
  EXPECT_EQ(world().backend_name(), "nccl");
  EXPECT_EQ(get_backend(), "nccl");
  const std::vector<std::vector<int>> parts = {{size() - 1, 0}};
  const auto pair = world().backend().split(parts, "pair", {});
  if (pair) {
    const ProcessGroup group(pair, parts[0]);
    EXPECT_EQ(group.rank(), rank() == 0 ? 1 : 0);
    std::vector<int> x(10, rank());
    comm::broadcast(group, std::span(x), GroupRank{0});
    EXPECT_THAT(x, Each(size() - 1));
    group.close();
  }
  comm::barrier(world());
}

RANKS_TEST(Nccl, ForEachDeviceABackend, Ranks(2, 3), Backends("nccl"), WithoutGroup()) {
  init_process_group("cpu:tcp,cuda:nccl");
  EXPECT_EQ(get_backend(), "nccl");
  std::vector<float> x(1000, 1.0F);
  comm::all_reduce(lockstep::world(), std::span(x));
  EXPECT_THAT(x, Each(static_cast<float>(size())));
  destroy_process_group();
}

RANKS_TEST(Nccl, RecordsTellWhoHasNotCalled, Ranks(2, 3), Backends("nccl")) {
  std::vector<float> x(10);
  comm::all_reduce(world(), std::span(x), ReduceOp::MAX);
  Work work;
  if (rank() != 0) work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  comm::barrier(world());
  if (rank() == 0) {
    EXPECT_THAT(analyze(live_traces(current_pid())),
                ContainsRegex("ank 0 \\(pid " + std::to_string(current_pid()) +
                              ", [^)]+\\) is missing from all_reduce #2 \\(float32\\[10\\], sum\\) on group "
                              "\"world\""));
    work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  }
  work.wait();
}

RANKS_TEST(Nccl, RefusesWhatItHasNot, Ranks(2), Backends("nccl")) {
  std::vector<int> x(10);
  EXPECT_THAT([&] { comm::isend(world(), std::span<const int>(x), 1 - rank(), /*tag=*/5); },
              ThrowsMessage<InvalidArgument>(HasSubstr("NCCL has no tags")));
  EXPECT_THAT([&] { comm::irecv(world(), std::span(x), ANY_SOURCE); },
              ThrowsMessage<InvalidArgument>(HasSubstr("NCCL cannot receive from any rank")));
  comm::all_reduce(world(), std::span(x));  // and the group is none the worse
}

// A backend that serves the CPU alone says so, wherever the buffer is said to be.
RANKS_TEST(Nccl, OtherBackendsRefuseADevicesMemory, Ranks(1, 2), Backends("shm")) {
  std::vector<int> x(10);
  EXPECT_THAT([&] { comm::all_reduce(world().on(DeviceType::CUDA), std::span(x)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("init_process_group(\"nccl\")")));
}

}  // namespace
}  // namespace lockstep
