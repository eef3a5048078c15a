// What a group over NCCL says when ranks disagree, die or come late, and when NCCL fails: the stand-in
// (tests/nccl) is told to.
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::error_of_sum;
using harness::error_of_sum_on_all;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Calls until the group has failed by itself, as a rank that is in a long computation finds it.
void call_until_it_fails(const ProcessGroup& group) {
  while (true) group.backend().check_peers();
}

// Of the second all_reduce, in NCCL's words, on all ranks.
void expect_the_refusal_of_rank_1(const ProcessGroup& group) {
  EXPECT_EQ(error_of_sum_on_all(group), "");
  std::vector<float> x(10);
  const auto call = [&] { comm::all_reduce(group, std::span(x)); };
  EXPECT_THAT(call, ThrowsMessage<DistBackendError>(
                        AllOf(HasSubstr("ncclAllReduce: internal error"), HasSubstr("told to fail"),
                              HasSubstr("all_reduce #2 on group \"world\""), HasSubstr("rank 1"))));
}

RANKS_TEST(NcclFailures, RanksThatCallDifferentThings, Ranks(2, 3), Backends("nccl")) {
  std::vector<float> x(1000);
  EXPECT_THAT(
      [&] {
        if (rank() == 1)
          comm::broadcast(world(), std::span(x), 0);
        else
          comm::all_reduce(world(), std::span(x));
      },
      ThrowsMessage<Mismatch>(
          AllOf(HasSubstr("ranks disagree about collective #1"), HasSubstr("all_reduce(float32[1000], sum)"),
                HasSubstr("broadcast(float32[1000], root 0)"), HasSubstr("on group \"world\""))));
  EXPECT_THROW(comm::all_reduce(world(), std::span(x)), Mismatch) << "and so does every later call";
}

RANKS_TEST(NcclFailures, RanksWhoseSizesDiffer, Ranks(2), Backends("nccl")) {
  std::vector<float> x(static_cast<std::size_t>(1000 + rank()));
  EXPECT_THAT([&] { comm::all_reduce(world(), std::span(x)); },
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("float32[1000]"), HasSubstr("float32[1001]"))));
}

RANKS_TEST(NcclFailures, PartsThatDoNotFit, Ranks(2), Backends("nccl")) {
  std::vector<float> mine(10);
  std::vector<float> a(rank() == 0 ? 10 : 9);
  std::vector<float> b(10);
  const std::vector<std::span<float>> outputs = {std::span(a), std::span(b)};
  EXPECT_THAT(
      [&] { comm::all_gather(world(), std::span<const float>(mine), outputs); },
      ThrowsMessage<Mismatch>(AllOf(HasSubstr("expects 9 elements of rank 0"), HasSubstr("which has 10"))));
}

RANKS_TEST(NcclFailures, MessagesThatDoNotFit, Ranks(2), Backends("nccl")) {
  std::vector<float> x(static_cast<std::size_t>(10 + rank()));
  EXPECT_THAT(
      [&] {
        if (rank() == 0)
          comm::send(world(), std::span<const float>(x), 1);
        else
          comm::recv(world(), std::span(x), 0);
        comm::all_reduce(world(), std::span(x));
      },
      ThrowsMessage<Mismatch>(AllOf(HasSubstr("sent float32[10]"), HasSubstr("received it as float32[11]"))));
}

// It has called nothing.
RANKS_TEST(NcclFailures, ADeadRank, Ranks(2, 3), Backends("nccl"), Dies({1})) {
  EXPECT_EQ(error_of_sum_on_all(world()), "");
  if (rank() == 1) die();
  std::vector<float> x(10);
  EXPECT_THAT([&] { comm::all_reduce(world(), std::span(x)); },
              ThrowsMessage<PeerLost>(
                  AllOf(HasSubstr("rank 1 (pid "), HasSubstr("is dead"), HasSubstr("all_reduce #2"))));
}

// It has called, and died while NCCL was at work: the stand-in never ends this one.
RANKS_TEST(NcclFailures, ARankThatDiesInTheMiddle, Ranks(2, 3), Backends("nccl"), Dies({1}),
           Variable("NCCL_STAND_IN", "hang:all_reduce:1")) {
  std::vector<float> x(10);
  Work work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  comm::barrier(world());
  if (rank() == 1) die();
  EXPECT_THAT([&] { work.wait(); },
              ThrowsMessage<PeerLost>(AllOf(HasSubstr("rank 1 (pid "), HasSubstr("is dead"))));
}

RANKS_TEST(NcclFailures, ARankThatIsLate, Ranks(2), Backends("nccl"), Variable("LOCKSTEP_TIMEOUT", "1")) {
  std::vector<float> x(10);
  if (rank() == 0) {
    EXPECT_THAT([&] { comm::all_reduce(world(), std::span(x)); },
                ThrowsMessage<Timeout>(AllOf(HasSubstr("no progress for 1 s"), HasSubstr("rank 1"))));
  } else {
    EXPECT_THAT([&] { call_until_it_fails(world()); },
                ThrowsMessage<Error>(HasSubstr("no progress for 1 s")));
  }
}

RANKS_TEST(NcclFailures, NcclThatNeverEnds, Ranks(2), Backends("nccl"), Variable("LOCKSTEP_TIMEOUT", "1"),
           Variable("NCCL_STAND_IN", "hang:all_reduce:1")) {
  EXPECT_THAT(error_of_sum(world()), AllOf(HasSubstr("NCCL has not finished all_reduce #1"),
                                           HasSubstr("though all ranks have called it")));
}

RANKS_TEST(NcclFailures, ACallThatIsLateIsOnlyLate, Ranks(2), Backends("nccl"),
           Variable("NCCL_STAND_IN", "late:all_reduce:1:1:100,progress:all_reduce:2")) {
  for (int call = 0; call < 3; ++call) {
    std::vector<float> x(10, 1.0F);
    comm::all_reduce(world(), std::span(x));
    EXPECT_THAT(x, Each(2.0F));
  }
}

// The ranks that send are done when NCCL has their data. They leave at once, and the data must arrive.
RANKS_TEST(NcclFailures, ARankThatLeavesHasSentEverything, Ranks(2, 3), Backends("nccl"),
           Variable("NCCL_STAND_IN", "network,late:broadcast:1:0:300")) {
  std::vector<float> x(1000, static_cast<float>(rank()));
  comm::broadcast(world(), std::span(x), GroupRank{size() - 1});
  EXPECT_THAT(x, Each(static_cast<float>(size() - 1)));
}

// A call that nobody has waited for, and that takes longer than a rank waits for ranks that come late.
RANKS_TEST(NcclFailures, WhoLeavesWaitsForWhatAllHaveCalled, Ranks(2), Backends("nccl"),
           Variable("NCCL_STAND_IN", "late:all_reduce:1:*:1500")) {
  std::vector<float> x(1000, 1.0F);
  (void)comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  destroy_process_group();
  EXPECT_THAT(x, Each(2.0F));
}

// NCCL's connections tell of a rank that has given up, and not why: the error is that rank's.
RANKS_TEST(NcclFailures, ARankThatGivesUpSaysWhy, Ranks(2, 3), Backends("nccl"),
           Variable("NCCL_STAND_IN", "network,fail:all_reduce:2:1")) {
  expect_the_refusal_of_rank_1(world());
}

// In NCCL's words, on all ranks, with the rank that has them.
RANKS_TEST(NcclFailures, ACallThatNcclRefuses, Ranks(2, 3), Backends("nccl"),
           Variable("NCCL_STAND_IN", "fail:all_reduce:2:1")) {
  expect_the_refusal_of_rank_1(world());
}

RANKS_TEST(NcclFailures, AnErrorThatNcclFindsLater, Ranks(2, 3), Backends("nccl"),
           Variable("NCCL_STAND_IN", "async:all_reduce:2:0")) {
  EXPECT_EQ(error_of_sum_on_all(world()), "");
  EXPECT_THAT(error_of_sum(world()), HasSubstr("remote process exited or there was a network error"));
}

// So that nobody keeps what an aborted NCCL has left: a barrier is the hosts'.
RANKS_TEST(NcclFailures, TheHostsCallsFailWithIt, Ranks(2, 3), Backends("nccl"),
           Variable("NCCL_STAND_IN", "async:all_reduce:2:0")) {
  EXPECT_EQ(error_of_sum_on_all(world()), "");
  EXPECT_NE(error_of_sum(world()), "");
  EXPECT_THAT([&] { comm::barrier(world()); },
              ThrowsMessage<DistBackendError>(
                  AllOf(HasSubstr("barrier on group \"world\""),
                        HasSubstr("remote process exited or there was a network error"))));
}

RANKS_TEST(NcclFailures, WhoWaitsInACallOfTheHostsIsTold, Ranks(2, 3), Backends("nccl"),
           Variable("NCCL_STAND_IN", "fail:all_reduce:1:1")) {
  const auto call = [&] {
    if (rank() != 1) comm::barrier(world());
    std::vector<float> x(10);
    comm::all_reduce(world(), std::span(x));
  };
  EXPECT_THAT(call, ThrowsMessage<DistBackendError>(AllOf(HasSubstr("ncclAllReduce: internal error"),
                                                          HasSubstr("told to fail"), HasSubstr("rank 1"))));
}

RANKS_TEST(NcclFailures, ACallOfTheHostsThatFailsEndsTheGroup, Ranks(2), Backends("nccl"),
           Variable("LOCKSTEP_TIMEOUT", "1")) {
  if (rank() == 0) {
    EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<Timeout>(HasSubstr("no progress for 1 s")));
  } else {
    EXPECT_THAT([&] { call_until_it_fails(world()); }, ThrowsMessage<Timeout>(HasSubstr("no progress")));
  }
  std::vector<float> x(10);
  EXPECT_THAT([&] { comm::all_reduce(world(), std::span(x)); },
              ThrowsMessage<Timeout>(AllOf(HasSubstr("no progress for 1 s"), HasSubstr("all_reduce"))));
}

RANKS_TEST(NcclFailures, ARankWithoutACommunicator, Ranks(2, 3), Backends("nccl"), WithoutGroup(),
           Variable("NCCL_STAND_IN", "init:fail:1")) {
  EXPECT_THAT(
      [&] { init_process_group("nccl"); },
      ThrowsMessage<Error>(AllOf(HasSubstr("ncclCommInitRankConfig"), HasSubstr("unhandled system error"))));
}

RANKS_TEST(NcclFailures, ACommunicatorThatNeverComes, Ranks(2), Backends("nccl"), WithoutGroup(),
           Variable("NCCL_STAND_IN", "init:hang"), Variable("LOCKSTEP_TIMEOUT", "1")) {
  EXPECT_THAT([&] { init_process_group("nccl"); },
              ThrowsMessage<Error>(HasSubstr("has not ended before the timeout")));
}

RANKS_TEST(NcclFailures, ACommunicatorThatCountsOtherwise, Ranks(2), Backends("nccl"), WithoutGroup(),
           Variable("NCCL_STAND_IN", "count:3")) {
  const auto words_of = [](int rank) {
    return str("this is rank ", rank, " of 3, and it is rank ", rank, " of 2");
  };
  try {
    init_process_group("nccl");
    ADD_FAILURE() << "a communicator of another size was taken";
  } catch (const DistBackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr(words_of(rank())));
  } catch (const Aborted& error) {  // the other rank was first
    EXPECT_THAT(error.what(), HasSubstr(words_of(1 - rank())));
  }
}

RANKS_TEST(NcclFailures, AnOldNccl, Ranks(2), Backends("nccl"), WithoutGroup(),
           Variable("NCCL_STAND_IN", "version:21300")) {
  EXPECT_THAT([&] { init_process_group("nccl"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("NCCL 2.13.0"), HasSubstr("2.14.0 or later"))));
}

RANKS_TEST(NcclFailures, NoNccl, Ranks(1, 2), Backends("shm"), WithoutGroup(),
           Variable("LOCKSTEP_NCCL", "/nowhere/libnccl.so.2")) {
  EXPECT_THAT(
      [&] { init_process_group("nccl"); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("/nowhere/libnccl.so.2"), HasSubstr("LOCKSTEP_NCCL"))));
  init_process_group();  // and the job can go on without
  comm::barrier(world());
  destroy_process_group();
}

RANKS_TEST(NcclFailures, AnewAfterAFailure, Ranks(2), Backends("nccl")) {
  std::vector<float> x(static_cast<std::size_t>(1000 + rank()));
  EXPECT_THROW(comm::all_reduce(world(), std::span(x)), Mismatch);
  rejoin();
  EXPECT_EQ(error_of_sum(world()), "");
}

}  // namespace
}  // namespace lockstep
