#include "lockstep/comm/trace/flight_recorder.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "lockstep/comm/trace/rank_trace.h"
#include "lockstep/os/process.h"
#include "testing/calls.h"

namespace lockstep {
namespace {

using harness::sum_of;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::SizeIs;

GroupTrace read_group(const TraceMemory& memory, const std::string& name) {
  const auto trace = read_trace(memory.bytes());
  if (!trace) throw std::runtime_error("no trace");
  for (const GroupTrace& group : trace->groups) {
    if (group.name == name) return group;
  }
  throw std::runtime_error("no group " + name);
}

TEST(FlightRecorder, KeepsWhatWasCalledAndWhen) {
  const auto memory = TraceMemory::create(2, 4);
  FlightRecorder recorder(memory, {"row", "tcp", 1, 2, {0, 2}});
  const std::int64_t before = CycleClock::steady_nanoseconds();
  const auto first =
      recorder.start({Verb::BROADCAST, DType::INT64, ReduceOp::MAX, Purpose::PROGRAM, 1, 77}, 5);
  recorder.finish(first, FlightRecorder::DONE);
  const auto second =
      recorder.start({Verb::RECV, DType::UINT8, ReduceOp::SUM, Purpose::PROGRAM, ANY_SOURCE, 3}, 0, -9);
  recorder.set_peer(second, 1);
  recorder.finish(second, FlightRecorder::DONE);
  const auto third = recorder.start(sum_of(10), 6);
  recorder.finish(third, FlightRecorder::FAILED);
  recorder.start(sum_of(11), 7);
  const std::int64_t after = CycleClock::steady_nanoseconds();

  const auto trace = read_trace(memory->bytes());
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->rank, 2);
  EXPECT_EQ(trace->size, 4);
  EXPECT_EQ(trace->pid, current_pid());
  EXPECT_THAT(trace->process, ::testing::AnyOf('R', 'S'));
  ASSERT_THAT(trace->groups, SizeIs(1));
  const GroupTrace& group = trace->groups[0];
  EXPECT_EQ(group.name, "row");
  EXPECT_EQ(group.backend, "tcp");
  EXPECT_EQ(group.rank, 1);
  EXPECT_THAT(group.members, ElementsAre(0, 2));
  EXPECT_FALSE(group.is_closed);
  EXPECT_EQ(group.calls, 4U);
  ASSERT_THAT(group.records, SizeIs(4));

  const TraceRecord& broadcast = group.records[0];
  EXPECT_EQ(broadcast.sequence, 5U);
  EXPECT_EQ(broadcast.call.verb, Verb::BROADCAST);
  EXPECT_EQ(broadcast.call.dtype, DType::INT64);
  EXPECT_EQ(broadcast.call.op, ReduceOp::MAX);
  EXPECT_EQ(broadcast.call.root, 1);
  EXPECT_EQ(broadcast.call.count, 77U);
  EXPECT_EQ(broadcast.state, CallState::DONE);
  EXPECT_EQ(group.records[1].call.root, 1) << "where it came from";
  EXPECT_EQ(group.records[1].tag, -9);
  EXPECT_EQ(group.records[1].sequence, 0U);
  EXPECT_EQ(group.records[2].state, CallState::FAILED);
  EXPECT_EQ(group.records[3].state, CallState::POSTED);
  EXPECT_EQ(group.records[3].end_ns, 0);
  constexpr std::int64_t SLACK = 1'000'000;  // the clock's rate is known from this test's duration only
  for (const TraceRecord& record : group.records) {
    EXPECT_GE(record.start_ns, before - SLACK);
    EXPECT_LE(record.start_ns, after + SLACK);
    if (record.end_ns != 0) EXPECT_GE(record.end_ns, record.start_ns);
  }
}

TEST(FlightRecorder, KeepsTheLastCalls) {
  const auto memory = TraceMemory::create(0, 1);
  FlightRecorder recorder(memory, {"world", "self"});
  for (std::uint64_t n = 1; n <= 1000; ++n)
    recorder.finish(recorder.start(sum_of(n), n), FlightRecorder::DONE);
  const GroupTrace group = read_group(*memory, "world");
  EXPECT_EQ(group.calls, 1000U);
  ASSERT_THAT(group.records, SizeIs(trace::RECORDS));
  for (std::size_t i = 0; i < trace::RECORDS; ++i)
    EXPECT_EQ(group.records[i].call.count, 1000 - trace::RECORDS + 1 + i);
}

TEST(FlightRecorder, KeepsACallThatHasNotEndedLongerThanTheRingIs) {
  const auto memory = TraceMemory::create(0, 1);
  FlightRecorder recorder(memory, {"world", "self"});
  const auto pending =
      recorder.start({Verb::RECV, DType::INT8, ReduceOp::SUM, Purpose::PROGRAM, 3, 42}, 0, 7);
  for (std::uint64_t n = 1; n <= 1000; ++n)
    recorder.finish(recorder.start(sum_of(n), n), FlightRecorder::DONE);
  EXPECT_EQ(read_group(*memory, "world").records.front().call.count, 42U);
  EXPECT_EQ(read_group(*memory, "world").records.front().state, CallState::POSTED);
  recorder.finish(pending, FlightRecorder::DONE);
  EXPECT_EQ(read_group(*memory, "world").records.front().state, CallState::DONE);
}

TEST(FlightRecorder, IgnoresTheEndOfACallThatWasOverwritten) {
  const auto memory = TraceMemory::create(0, 1);
  FlightRecorder recorder(memory, {"world", "self"});
  std::vector<FlightRecorder::Ticket> tickets;
  for (std::uint64_t n = 1; n <= 3 * trace::RECORDS; ++n) tickets.push_back(recorder.start(sum_of(n), n));
  for (std::size_t n = 0; n < 2 * trace::RECORDS; ++n) recorder.finish(tickets[n], FlightRecorder::FAILED);
  for (const TraceRecord& record : read_group(*memory, "world").records)
    EXPECT_EQ(record.state, record.call.count <= 2 * trace::RECORDS ? CallState::FAILED : CallState::POSTED);
}

TEST(FlightRecorder, AGroupThatIsOverStaysForAWhileAndItsRingIsUsedAgain) {
  const auto memory = TraceMemory::create(0, 1);
  {
    FlightRecorder recorder(memory, {"gone", "self"});
    recorder.start(sum_of(5), 1);
    recorder.leave();
    EXPECT_TRUE(read_group(*memory, "gone").is_closed);
  }
  EXPECT_EQ(read_group(*memory, "gone").records.at(0).call.count, 5U);
  for (std::size_t i = 0; i < 3 * trace::RINGS; ++i)
    FlightRecorder(memory, {"other", "self"}).start(sum_of(1), 1);
  const auto trace = read_trace(memory->bytes());
  EXPECT_LT(trace->groups.size(), 12U) << "the memory of groups that come and go does not grow";
  EXPECT_THAT(trace->groups, ::testing::Not(::testing::Contains(Field(&GroupTrace::name, "gone"))));
}

TEST(FlightRecorder, MoreGroupsThanRingsAreNotInTheWay) {
  const auto memory = TraceMemory::create(0, 1);
  std::vector<std::unique_ptr<FlightRecorder>> recorders;
  for (std::size_t i = 0; i < trace::RINGS + 3; ++i) {
    recorders.push_back(std::make_unique<FlightRecorder>(memory, TracedGroup{"many", "self"}));
    recorders.back()->finish(recorders.back()->start(sum_of(i), 1), FlightRecorder::DONE);
  }
  EXPECT_THAT(read_trace(memory->bytes())->groups, SizeIs(trace::RINGS));
}

TEST(FlightRecorder, AForkMayMakeGroupsOfItsOwn) {
  const auto memory = TraceMemory::create(0, 1);
  auto recorder = std::make_unique<FlightRecorder>(memory, TracedGroup{"parent's", "self"});
  const pid_t child = fork();
  if (child == 0) {
    {
      FlightRecorder own(memory, {"child's", "self"});
      own.finish(own.start(sum_of(1), 1), FlightRecorder::DONE);
    }
    recorder.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_THAT(read_trace(memory->bytes())->groups, SizeIs(1));
}

// Every field of call n is a function of n, so a mixture of two calls would show.
TEST(FlightRecorder, AReaderNeverSeesHalfARecord) {
  const auto memory = TraceMemory::create(0, 1);
  FlightRecorder recorder(memory, {"world", "self"});
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (std::uint64_t n = 1; !stop.load(std::memory_order_relaxed); ++n) {
      const Call call{static_cast<Verb>(n % VERB_COUNT),
                      static_cast<DType>(n % DTYPE_COUNT),
                      static_cast<ReduceOp>(n % REDUCE_OP_COUNT),
                      static_cast<Purpose>(n % PURPOSE_COUNT),
                      static_cast<int>(n % 1000),
                      n};
      const auto ticket = recorder.start(call, n, static_cast<int>(n % 77));
      if (n % 3 != 0) recorder.finish(ticket, n % 3 == 1 ? FlightRecorder::DONE : FlightRecorder::FAILED);
    }
  });
  std::uint64_t seen = 0;
  std::uint64_t last = 0;
  while (last < 20 * trace::RECORDS || seen < 20 * trace::RECORDS) {
    const GroupTrace group = read_group(*memory, "world");
    for (const TraceRecord& record : group.records) {
      const std::uint64_t n = record.number;
      ASSERT_EQ(record.sequence, n);
      ASSERT_EQ(record.call.count, n);
      ASSERT_EQ(static_cast<std::uint64_t>(record.call.verb), n % VERB_COUNT);
      ASSERT_EQ(static_cast<std::uint64_t>(record.call.dtype), n % DTYPE_COUNT);
      ASSERT_EQ(static_cast<std::uint64_t>(record.call.op), n % REDUCE_OP_COUNT);
      ASSERT_EQ(static_cast<std::uint64_t>(record.call.purpose), n % PURPOSE_COUNT);
      ASSERT_EQ(static_cast<std::uint64_t>(record.call.root), n % 1000);
      ASSERT_EQ(static_cast<std::uint64_t>(record.tag), n % 77);
      if (n % 3 == 0) ASSERT_EQ(record.state, CallState::POSTED);
      if (n % 3 == 1) ASSERT_NE(record.state, CallState::FAILED);
      if (n % 3 == 2) ASSERT_NE(record.state, CallState::DONE);
    }
    seen += group.records.size();
    last = std::max(last, group.calls);
  }
  stop = true;
  writer.join();
}

TEST(ReadTrace, RefusesWhatIsNone) {
  const std::vector<std::byte> zeros(trace::HEADER_BYTES + trace::RINGS * trace::RING_BYTES);
  EXPECT_FALSE(read_trace(zeros));
  EXPECT_FALSE(read_trace(std::span(zeros).first(100)));
}

}  // namespace
}  // namespace lockstep
