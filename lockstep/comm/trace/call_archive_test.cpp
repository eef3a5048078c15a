#include "lockstep/comm/trace/call_archive.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/trace/flight_recorder.h"
#include "testing/calls.h"

namespace lockstep {
namespace {

using harness::sum_of;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void call(FlightRecorder& recorder, std::uint64_t n) {
  recorder.finish(recorder.start(sum_of(10 * n), n), FlightRecorder::DONE);
}

TEST(CallArchive, HasEveryCallOfItsTime) {
  const auto memory = TraceMemory::create(1, 3);
  FlightRecorder recorder(memory, {"world", "tcp", 1, 3, {}});
  for (std::uint64_t n = 1; n <= 300; ++n) call(recorder, n);
  const CallArchive archive;
  EXPECT_THAT(archive.groups(), IsEmpty());
  const std::int64_t before = CycleClock::steady_nanoseconds();
  for (std::uint64_t n = 301; n <= 5300; ++n) call(recorder, n);
  const std::int64_t after = CycleClock::steady_nanoseconds();
  const auto groups = archive.groups();
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_EQ(groups[0].name, "world");
  EXPECT_EQ(groups[0].backend, "tcp");
  EXPECT_EQ(groups[0].rank, 1);
  EXPECT_THAT(groups[0].members, ::testing::ElementsAre(0, 1, 2));
  ASSERT_THAT(groups[0].records, SizeIs(5000));
  constexpr std::int64_t SLACK = 1'000'000;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const TraceRecord& record = groups[0].records[i];
    ASSERT_EQ(record.sequence, 301 + i);
    ASSERT_EQ(record.call.count, 10 * (301 + i));
    ASSERT_EQ(record.state, CallState::DONE);
    ASSERT_GE(record.start_ns, before - SLACK);
    ASSERT_LE(record.end_ns, after + SLACK);
  }
  EXPECT_THAT(archive.groups()[0].records, SizeIs(5000)) << "asking changes nothing";
}

TEST(CallArchive, HasCallsThatBeganBeforeAndThatDoNotEnd) {
  const auto memory = TraceMemory::create(0, 1);
  FlightRecorder recorder(memory, {"world", "self"});
  const auto early = recorder.start(sum_of(1), 1);
  const auto open = recorder.start(sum_of(2), 2);
  const CallArchive archive;
  for (std::uint64_t n = 3; n <= 600; ++n) call(recorder, n);
  recorder.finish(early, FlightRecorder::FAILED);
  for (std::uint64_t n = 601; n <= 1000; ++n) call(recorder, n);
  const auto records = archive.groups().at(0).records;
  ASSERT_THAT(records, SizeIs(1000));
  EXPECT_EQ(records[0].sequence, 1U);
  EXPECT_EQ(records[0].state, CallState::FAILED);
  EXPECT_EQ(records[1].sequence, 2U);
  EXPECT_EQ(records[1].state, CallState::POSTED);
  recorder.finish(open, FlightRecorder::DONE);
  EXPECT_EQ(archive.groups().at(0).records[1].state, CallState::DONE);
}

TEST(CallArchive, HasCallsOfGroupsThatAreGone) {
  const auto memory = TraceMemory::create(0, 1);
  std::vector<GroupTrace> groups;
  {
    const CallArchive archive;
    for (int g = 0; g < 300; ++g) {  // more than there are rings
      FlightRecorder recorder(memory, {"group " + std::to_string(g), "self"});
      call(recorder, 1);
      call(recorder, 2);
    }
    groups = archive.groups();
  }
  ASSERT_THAT(groups, SizeIs(300));
  for (int g = 0; g < 300; ++g) {
    EXPECT_EQ(groups[static_cast<std::size_t>(g)].name, "group " + std::to_string(g));
    EXPECT_THAT(groups[static_cast<std::size_t>(g)].records, SizeIs(2));
  }
  const CallArchive next;
  EXPECT_THAT(next.groups(), IsEmpty());
}

TEST(CallArchive, IsReadWhileOthersCall) {
  constexpr std::uint64_t CALLS = 20000;
  const auto memory = TraceMemory::create(0, 1);
  FlightRecorder a(memory, {"a", "self"}), b(memory, {"b", "self"});
  const CallArchive archive;
  std::atomic<int> running = 2;
  const auto work = [&](FlightRecorder& recorder) {
    for (std::uint64_t n = 1; n <= CALLS; ++n) call(recorder, n);
    --running;
  };
  std::thread first(work, std::ref(a)), second(work, std::ref(b));
  while (running != 0) {
    for (const GroupTrace& group : archive.groups()) {
      for (std::size_t i = 1; i < group.records.size(); ++i)
        ASSERT_LT(group.records[i - 1].number, group.records[i].number);
    }
  }
  first.join();
  second.join();
  for (const GroupTrace& group : archive.groups()) EXPECT_THAT(group.records, SizeIs(CALLS)) << group.name;
}

TEST(CallArchive, IsOneAtATime) {
  const CallArchive archive;
  EXPECT_THROW(CallArchive(), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
