// What the flight recorders say of a known program, on every backend that they are built into.
#include <gmock/gmock.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/comm/trace/rank_trace.h"
#include "lockstep/comm/trace/trace_analysis.h"
#include "lockstep/os/process.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// Of the world of this process's job, from outside; `rank` is one of the world.
GroupTrace look(int rank, const std::string& group) {
  for (const RankTrace& trace : live_traces(current_pid())) {
    if (trace.rank != rank) continue;
    for (const GroupTrace& candidate : trace.groups) {
      if (candidate.name == group && !candidate.is_closed) return candidate;
    }
  }
  throw std::runtime_error("no records of rank " + std::to_string(rank));
}

RANKS_TEST(FlightRecorder, SaysWhatEveryRankCalled, Ranks(1, 2, 3, 4), EveryBackend(), Except("nccl")) {
  constexpr int ROUNDS = 5;
  std::vector<float> floats(100);
  std::vector<std::int64_t> numbers(7);
  for (int round = 0; round < ROUNDS; ++round) {
    comm::all_reduce(world(), std::span(floats), ReduceOp::MAX);
    comm::broadcast(world(), std::span(numbers), size() - 1);
  }
  comm::barrier(world());
  for (int r = 0; r < size(); ++r) {
    const GroupTrace group = look(r, "world");
    EXPECT_EQ(group.rank, r);
    EXPECT_EQ(group.backend, backend_name());
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(group.members, all);
    ASSERT_GE(group.records.size(), 2 * ROUNDS + 1U);
    for (std::size_t i = 0; i < 2 * ROUNDS + 1; ++i) {
      const TraceRecord& record = group.records[i];
      EXPECT_EQ(record.number, i + 1);
      EXPECT_EQ(record.sequence, i + 1);
      const std::string last = "broadcast(int64[7], root " + std::to_string(size() - 1) + ")";
      EXPECT_EQ(describe(record.call), i == 2 * ROUNDS ? "barrier()"
                                       : i % 2 == 0    ? "all_reduce(float32[100], max)"
                                                       : last);
      if (r == rank()) EXPECT_EQ(record.state, CallState::DONE);
      if (record.state == CallState::DONE) EXPECT_GE(record.end_ns, record.start_ns);
      if (i > 0) EXPECT_GE(record.start_ns, group.records[i - 1].start_ns);
    }
  }
  comm::barrier(world());
}

RANKS_TEST(FlightRecorder, SaysWhatMessagesThereWere, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  std::vector<std::int32_t> numbers(5);
  if (rank() == 0) comm::send(world(), std::span<const std::int32_t>(numbers), 1, 8);
  if (rank() == 1) comm::recv(world(), std::span(numbers), ANY_SOURCE, 8);
  comm::barrier(world());
  const TraceRecord sent = look(0, "world").records.at(0);
  EXPECT_EQ(sent.call.verb, Verb::SEND);
  EXPECT_EQ(sent.call.root, 1);
  EXPECT_EQ(sent.call.count, 5U);
  EXPECT_EQ(sent.tag, 8);
  const TraceRecord received = look(1, "world").records.at(0);
  EXPECT_EQ(received.call.verb, Verb::RECV);
  EXPECT_EQ(received.call.root, 0) << "where it came from";
  EXPECT_EQ(received.state, CallState::DONE);
  comm::barrier(world());
}

RANKS_TEST(FlightRecorder, KnowsGroupsOfSomeRanks, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  const std::vector<std::vector<int>> parts = {{size() - 1, 0}};
  const auto pair = world().backend().split(parts, "pair", {});
  if (pair) {
    Request request;
    if (const auto work = pair->start(request)) work->wait(std::nullopt);
    const GroupTrace group = look(rank(), "pair");
    EXPECT_EQ(group.members, parts[0]);
    EXPECT_EQ(group.rank, rank() == 0 ? 1 : 0);
    EXPECT_EQ(group.calls, 1U);
  }
  comm::barrier(world());
}

RANKS_TEST(FlightRecorder, AnalysisNamesTheRankThatHasNotCalled, Ranks(2, 3, 4), EveryBackend(),
           Except("nccl")) {
  comm::barrier(world());
  std::vector<float> data(10);
  Work work;
  if (rank() != size() - 1)
    work = comm::all_reduce(world(), std::span(data), ReduceOp::SUM, /*async_op=*/true);
  // Until all others have posted it: their calls are in their records by then.
  const auto posted = [&] {
    for (int r = 0; r + 1 < size(); ++r) {
      if (look(r, "world").calls < 2) return false;
    }
    return true;
  };
  if (rank() == size() - 1) {
    while (!posted()) yield_cpu();
    EXPECT_THAT(
        analyze(live_traces(current_pid())),
        HasSubstr("is missing from all_reduce #2 (float32[10], sum) on group \"world\": its last call was "
                  "barrier #1, done"));
    work = comm::all_reduce(world(), std::span(data), ReduceOp::SUM, /*async_op=*/true);
  }
  work.wait();
}

RANKS_TEST(FlightRecorder, ADeadRanksRecordsCanStillBeRead, Ranks(2, 3, 4), Backends("shm", "tcp", "gloo"),
           Dies({1})) {
  std::vector<float> data(10);
  comm::all_reduce(world(), std::span(data));
  std::vector<int> done(1);  // all are, before rank 1 dies
  for (int r = 0; r < size() && rank() == 1; ++r) {
    if (r != 1) comm::recv(world(), std::span(done), r);
  }
  if (rank() == 1) die();
  comm::send(world(), std::span<const int>(done), 1);
  EXPECT_THROW(comm::barrier(world()), PeerLost);

  const GroupTrace group = look(1, "world");
  ASSERT_EQ(group.calls, static_cast<std::uint64_t>(size()));
  EXPECT_EQ(describe(group.records[0].call), "all_reduce(float32[10], sum)");
  for (const TraceRecord& record : group.records) EXPECT_EQ(record.state, CallState::DONE);
  const GroupTrace mine = look(rank(), "world");
  if (mine.calls == 3)
    EXPECT_EQ(mine.records.back().state, CallState::FAILED);  // else refused: it had failed
  EXPECT_THAT(mine.failure, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(analyze(live_traces(current_pid())), HasSubstr("Group \"world\" has failed: rank 1 (pid "));
}

}  // namespace
}  // namespace lockstep
