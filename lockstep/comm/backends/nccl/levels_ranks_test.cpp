// Backend hierarchical+nccl over the stand-in for NCCL: ranks 0 and 1 count as on one machine, 2 and 3 as on
// another; of three, rank 0 is alone. The suite of all backends runs over it, too.
#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::error_of_sum;
using harness::error_of_sum_on_all;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Of fewer elements than ranks, of some that two do not divide, of several segments.
RANKS_TEST(NcclLevels, SumsOfEveryLength, Ranks(3, 4), Backends("hierarchical+nccl")) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 1000U, 1001U, 3U << 20U, (3U << 20U) + 1U}) {
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i)
      x[i] = static_cast<float>((i % 1000) * static_cast<std::size_t>(rank() + 1));
    comm::all_reduce(world(), std::span(x));
    const std::size_t ranks = static_cast<std::size_t>(size() * (size() + 1) / 2);
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) expected[i] = static_cast<float>((i % 1000) * ranks);
    EXPECT_TRUE(x == expected) << count;
  }
}

// Which use the streams one after the other.
RANKS_TEST(NcclLevels, ManyAtOnce, Ranks(4), Backends("hierarchical+nccl")) {
  constexpr int CALLS = 20;
  std::vector<std::vector<double>> x;
  std::vector<Work> works;
  for (int call = 0; call < CALLS; ++call) x.emplace_back(10001 + call, call + rank());
  for (auto& one : x) {
    works.push_back(comm::all_reduce(world(), std::span(one), ReduceOp::AVG, /*async_op=*/true));
    works.push_back(comm::broadcast(world(), std::span(one).first(1), 3, /*async_op=*/true));
  }
  for (Work& work : works) work.wait();
  for (int call = 0; call < CALLS; ++call)
    EXPECT_THAT(x[static_cast<std::size_t>(call)], Each(call + 1.5)) << call;
}

RANKS_TEST(NcclLevels, GroupsWithoutNeighboursAreNccls, Ranks(4), Backends("hierarchical+nccl")) {
  EXPECT_EQ(world().backend_name(), "hierarchical+nccl");
  EXPECT_EQ(get_backend(), "hierarchical+nccl");
  for (const auto& parts : {std::vector<std::vector<int>>{{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}}) {
    const auto part = world().backend().split(parts, "part", {});
    const ProcessGroup group(part);
    EXPECT_EQ(group.backend_name(), "nccl");
    std::vector<int> x(10, rank());
    comm::all_reduce(group, std::span(x));
    EXPECT_THAT(x, Each(rank() == parts[0][0] || rank() == parts[0][1] ? parts[0][0] + parts[0][1]
                                                                       : parts[1][0] + parts[1][1]));
    group.close();
  }
  const auto turned = world().backend().split({{3, 1, 0, 2}}, "turned", {});
  const ProcessGroup group(turned);
  EXPECT_EQ(group.backend_name(), "hierarchical+nccl");
  std::vector<int> x(1001, rank());
  comm::all_reduce(group, std::span(x));
  EXPECT_THAT(x, Each(6));
  group.close();
}

RANKS_TEST(NcclLevels, ForEachDeviceABackend, Ranks(4), Backends("hierarchical+nccl"), WithoutGroup()) {
  init_process_group("cpu:tcp,cuda:hierarchical+nccl");
  EXPECT_EQ(get_backend(), "hierarchical+nccl");
  std::vector<float> x(1001, 1.0F);
  comm::all_reduce(lockstep::world(), std::span(x));
  EXPECT_THAT(x, Each(4.0F));
  destroy_process_group();
}

// Each level's calls are made, and each one's errors are the group's.
RANKS_TEST(NcclLevels, ASumWithinThatNcclRefuses, Ranks(4), Backends("hierarchical+nccl"),
           Variable("NCCL_STAND_IN", "fail:reduce_scatter:2:1")) {
  EXPECT_EQ(error_of_sum_on_all(world()), "");
  EXPECT_THAT(error_of_sum(world()),
              AllOf(HasSubstr("ncclReduceScatter: internal error"), HasSubstr("all_reduce #2")));
}

// An all_reduce of 1001 elements is one between machines and one of what is left over.
RANKS_TEST(NcclLevels, ASumBetweenThatFailsLater, Ranks(4), Backends("hierarchical+nccl"),
           Variable("NCCL_STAND_IN", "async:all_reduce:3:0")) {
  EXPECT_EQ(error_of_sum_on_all(world()), "");
  EXPECT_THAT(error_of_sum(world()), HasSubstr("remote process exited or there was a network error"));
}

RANKS_TEST(NcclLevels, AGatheringThatNeverEnds, Ranks(4), Backends("hierarchical+nccl"),
           Variable("LOCKSTEP_TIMEOUT", "1"), Variable("NCCL_STAND_IN", "hang:all_gather:1")) {
  EXPECT_THAT(error_of_sum(world()), HasSubstr("NCCL has not finished all_reduce #1"));
}

RANKS_TEST(NcclLevels, ARankThatDiesInTheMiddle, Ranks(4), Backends("hierarchical+nccl"), Dies({3}),
           Variable("NCCL_STAND_IN", "hang:reduce_scatter:1")) {
  std::vector<float> x(1001);
  Work work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  comm::barrier(world());
  if (rank() == 3) die();
  try {
    work.wait();
    ADD_FAILURE() << "an all_reduce without rank 3";
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what(), AllOf(HasSubstr("rank 3 (pid "), HasSubstr("is dead")));
  }
}

RANKS_TEST(NcclLevels, AnAbortReachesEveryRankWithItsReason, Ranks(4), Backends("hierarchical+nccl")) {
  std::vector<float> x(1001);
  const auto use = [&] {
    comm::reduce(world(), std::span(x), 3);  // over for rank 3 when all are here
    if (rank() == 3) world().abort("the loss is not a number");
    while (true) comm::all_reduce(world(), std::span(x));
  };
  EXPECT_THAT(use, ThrowsMessage<Aborted>(HasSubstr("the loss is not a number")));
}

RANKS_TEST(NcclLevels, ACallThatIsLateIsOnlyLate, Ranks(4), Backends("hierarchical+nccl"),
           Variable("NCCL_STAND_IN",
                    "late:all_reduce:1:1:100,progress:reduce_scatter:2,late:all_gather:2:0:100")) {
  for (int call = 0; call < 3; ++call) EXPECT_EQ(error_of_sum(world()), "");
}

}  // namespace
}  // namespace lockstep
