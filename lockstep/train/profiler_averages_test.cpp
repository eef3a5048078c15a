// Beside Python's own averages and tables, of the same events.
#include "lockstep/train/profiler_averages.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/base/error.h"
#include "testing/python.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_python;
using testing::TempFolder;
using ::testing::ThrowsMessage;
using Kind = ProfilerEvent::Kind;

constexpr std::int64_t US = 1000;  // whole microseconds, so that sums in Python's floats are exact

// Operations that call operations, on three threads, with shapes and memory: random, the same each time.
class RandomTrace {
 public:
  RandomTrace() {
    trace.profile_memory = true;
    for (std::uint64_t thread = 1; thread <= 3; ++thread) {
      for (int i = 0; i < 40; ++i) {
        const std::int64_t begin = 10000 * i + static_cast<std::int64_t>(thread),
                           end = begin + 9000 + below(900);
        if (i % 7 == 0) memory(begin - 1, thread);
        call(begin, end, thread, 0);
      }
    }
    ProfilerEvent async;
    async.name = "asynchronous";
    async.start_ns = 50 * US;
    async.end_ns = 70000 * US;
    async.is_async = true;
    trace.events.push_back(async);
    for (const char* left_out : {"aten::is_leaf", "profiler::_record_function_exit"}) {
      async.name = left_out;
      trace.events.push_back(async);
    }
  }

  ProfilerTrace trace;

 private:
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }

  void memory(std::int64_t at, std::uint64_t thread) {
    ProfilerEvent event;
    event.name = "[memory]";
    event.kind = Kind::MEMORY;
    event.start_ns = event.end_ns = at * US;
    event.thread = thread;
    event.bytes = (below(4000) - 1500) * (1 + below(3000));
    trace.events.push_back(event);
  }

  void call(std::int64_t begin, std::int64_t end, std::uint64_t thread, int depth) {
    static const char* const NAMES[] = {"aten::mm", "aten::add_", "aten::sum", "aten::to",
                                        "autograd::engine::evaluate_function: AddmmBackward0 of a long name"};
    ProfilerEvent event;
    event.name = NAMES[below(5)];
    if (below(6) == 0) event.kind = Kind::USER_ANNOTATION;
    event.start_ns = begin * US;
    event.end_ns = end * US;
    event.thread = thread;
    for (std::int64_t i = below(3); i > 0; --i) event.input_shapes.push_back({below(2), 30});
    if (below(5) == 0) event.input_shapes.assign(12, {1000, 2000, 3000});
    if (below(3) == 0) event.input_shapes.emplace_back();
    trace.events.push_back(event);
    if (depth == 4 || end - begin < 100) return;
    const std::int64_t calls = below(4);
    for (std::int64_t i = 0; i < calls; ++i) {
      const std::int64_t width = (end - begin) / calls;
      if (below(2) == 0) memory(begin + i * width + 1, thread);
      call(begin + i * width + 2, begin + (i + 1) * width - below(width / 2), thread, depth + 1);
    }
  }

  std::mt19937_64 random_{5};
};

std::string as_json(const ProfilerTrace& trace) {
  nlohmann::json all = nlohmann::json::array();
  for (const ProfilerEvent& event : trace.events) {
    all.push_back({{"name", event.name},
                   {"start", event.start_ns},
                   {"end", event.end_ns},
                   {"thread", event.thread},
                   {"shapes", event.input_shapes},
                   {"async", event.is_async},
                   {"annotation", event.kind == Kind::USER_ANNOTATION},
                   {"bytes", event.bytes}});
  }
  return all.dump();
}

const char* const TABLES = R"(
import json, sys
from torch.autograd.profiler_util import EventList, FunctionEvent, _filter_name

events = json.load(open(sys.argv[1]))
operations = [e for e in events if not _filter_name(e["name"])]
def of(e, bytes):
    return FunctionEvent(0, e["name"], e["thread"], e["start"] / 1000, e["end"] / 1000, input_shapes=e["shapes"], stack=[],
                         is_async=e["async"], is_user_annotation=e["annotation"], cpu_memory_usage=bytes)
inside = lambda m, e: m["thread"] == e["thread"] and e["start"] <= m["start"] <= e["end"]
memory = [e for e in events if e["name"] == "[memory]"]
all = [of(e, sum(m["bytes"] for m in memory if inside(m, e) and not e["async"])) for e in operations]
all += [of(m, m["bytes"]) for m in memory if not any(inside(m, e) for e in operations)]
all.sort(key=lambda e: [e.time_range.start, -e.time_range.end])
events = EventList(all, profile_memory=True)
events._build_tree()
for shapes in False, True:
    averages = events.key_averages(group_by_input_shapes=shapes)
    for sort_by in None, "self_cpu_time_total", "cpu_time_total", "cpu_time", "count", "cpu_memory_usage", "self_cpu_memory_usage":
        print(averages.table(sort_by=sort_by, row_limit=-1))
    print(averages.table(row_limit=3))
)";

TEST(KeyAverages, TablesAreThoseOfPython) {
  const RandomTrace random;
  TempFolder folder;
  const std::string expected = run_python(TABLES, {folder.write("events.json", as_json(random.trace))});
  std::string tables;
  for (const bool by_shape : {false, true}) {
    const KeyAverages averages = key_averages(random.trace, by_shape);
    for (const char* sort_by : {"", "self_cpu_time_total", "cpu_time_total", "cpu_time", "count",
                                "cpu_memory_usage", "self_cpu_memory_usage"})
      tables += averages.table(sort_by, -1) + "\n";
    tables += averages.table("", 3) + "\n";
  }
  EXPECT_EQ(tables, expected);
}

// The time that lies in operations: of each thread the union of their intervals.
double covered(const ProfilerTrace& trace) {
  std::map<std::uint64_t, std::map<std::int64_t, std::int64_t>> of_thread;
  for (const ProfilerEvent& event : trace.events) {
    if (event.is_async || event.kind == Kind::MEMORY) continue;
    std::int64_t& end = of_thread[event.thread][event.start_ns];
    end = std::max(end, event.end_ns);
  }
  std::int64_t sum = 0;
  for (const auto& [thread, intervals] : of_thread) {
    std::int64_t until = 0;
    for (const auto& [start, end] : intervals) {
      sum += std::max<std::int64_t>(end - std::max(start, until), 0);
      until = std::max(until, end);
    }
  }
  return static_cast<double>(sum) / 1e3;
}

TEST(KeyAverages, SelfTimesAreTheTimeThatLiesInOperations) {
  const RandomTrace random;
  double sum = 0;
  for (const FunctionEventAvg& row : key_averages(random.trace, false)) {
    sum += row.self_cpu_time_total;
    EXPECT_GE(row.self_cpu_time_total, 0) << row.key;
    EXPECT_LE(row.self_cpu_time_total, row.cpu_time_total) << row.key;
  }
  EXPECT_DOUBLE_EQ(sum, covered(random.trace));
}

TEST(KeyAverages, CollectivesWaitAndDoNotCompute) {
  ProfilerTrace trace;
  trace.steady_to_unix = 1'000'000;
  trace.end_ns = 1'000'900;
  GroupTrace group;
  const Call call{.verb = Verb::ALL_REDUCE, .dtype = DType::FLOAT32, .count = 10};
  group.records.push_back({1, 1, call, 0, 100, 400, CallState::DONE});
  group.records.push_back({2, 2, call, 0, 300, 0, CallState::POSTED});
  trace.groups.push_back(group);
  const KeyAverages rows = key_averages(trace, false);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].key, "lockstep:all_reduce");
  EXPECT_EQ(rows[0].count, 2);
  EXPECT_DOUBLE_EQ(rows[0].cpu_time_total, (300 + 600) / 1e3)
      << "an open call lasts to the end of the profile";
  EXPECT_EQ(rows[0].self_cpu_time_total, 0);
  EXPECT_THAT(rows.table(), HasSubstr("NaN"));
}

TEST(KeyAverages, OfNothing) {
  const KeyAverages rows = key_averages({}, false);
  EXPECT_THAT(rows, IsEmpty());
  EXPECT_EQ(rows.table("count"), "");
  EXPECT_THAT([&] { rows.table("cuda_time"); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"cuda_time\"")));
}

}  // namespace
}  // namespace lockstep
