#include "lockstep/train/profiler_chrome_trace.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using nlohmann::json;

json written(const ProfilerTrace& trace) {
  std::string text;
  write_chrome_trace(trace, [&](std::string_view piece) { text += piece; });
  return json::parse(text);
}

std::vector<json> of_category(const json& trace, const std::string& category) {
  std::vector<json> events;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == category) events.push_back(event);
  }
  return events;
}

ProfilerTrace make_trace() {
  ProfilerTrace trace;
  trace.start_ns = 1'800'000'000'000'000'000;
  trace.end_ns = trace.start_ns + 5'000'000;
  trace.steady_to_unix = trace.start_ns - 7'000'000;
  trace.rank = 2;
  trace.world_size = 4;
  trace.pid = 4121;
  trace.backend = "shm";
  return trace;
}

TEST(ChromeTrace, HasOperations) {
  ProfilerTrace trace = make_trace();
  ProfilerEvent event;
  event.name = "aten::mm";
  event.start_ns = trace.start_ns + 1'500;
  event.end_ns = trace.start_ns + 13'750;
  event.thread = 1;
  event.resource = 4122;
  event.sequence_nr = 9;
  event.input_shapes = {{3, 4}, {}};
  trace.events.push_back(event);
  event.kind = ProfilerEvent::Kind::USER_ANNOTATION;
  event.name = "a \"name\"\n\xff";
  event.fwd_thread = 1;
  trace.events.push_back(event);
  event.kind = ProfilerEvent::Kind::MEMORY;
  event.bytes = -64;
  trace.events.push_back(event);
  const json out = written(trace);
  EXPECT_EQ(out["distributedInfo"], json({{"backend", "shm"}, {"rank", 2}, {"world_size", 4}}));
  const auto base = out["baseTimeNanoseconds"].get<std::int64_t>();
  const std::vector<json> operations = of_category(out, "cpu_op");
  ASSERT_EQ(operations.size(), 1U);
  const double start = static_cast<double>(event.start_ns - base) / 1e3;
  EXPECT_EQ(operations[0],
            json({{"ph", "X"},
                  {"cat", "cpu_op"},
                  {"name", "aten::mm"},
                  {"pid", 4121},
                  {"tid", 4122},
                  {"ts", start},
                  {"dur", 12.25},
                  {"args", {{"Sequence number", 9}, {"Input Dims", {{3, 4}, json::array()}}}}}));
  const std::vector<json> ranges = of_category(out, "user_annotation");
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_EQ(ranges[0]["name"], "a \"name\"\n\xEF\xBF\xBD");
  EXPECT_EQ(ranges[0]["args"]["Fwd thread id"], 1);
  const std::vector<json> memory = of_category(out, "cpu_instant_event");
  ASSERT_EQ(memory.size(), 1U);
  EXPECT_EQ(memory[0]["args"]["Bytes"], -64);
}

TEST(ChromeTrace, HasCallsOnTracksWhereTheyDoNotOverlap) {
  ProfilerTrace trace = make_trace();
  GroupTrace group;
  group.name = "world";
  group.backend = "shm";
  group.rank = 2;
  const Call sum{Verb::ALL_REDUCE, DType::FLOAT32, ReduceOp::SUM, Purpose::PROGRAM, 0, 1000};
  constexpr std::int64_t MS = 1'000'000;
  group.records = {{1, 1, sum, 0, 7 * MS, 9 * MS, CallState::DONE},
                   {2, 2, sum, 0, 8 * MS, 10 * MS, CallState::FAILED},
                   {3, 3, sum, 0, 9 * MS, 0, CallState::POSTED},
                   {4,
                    0,
                    {Verb::SEND, DType::UINT8, ReduceOp::SUM, Purpose::PROGRAM, 3, 5},
                    17,
                    10 * MS,
                    11 * MS,
                    CallState::DONE}};
  trace.groups = {group, group};
  trace.groups[1].name = "row";
  trace.groups[1].records[1].call.purpose = Purpose::GRADIENTS;
  const json out = written(trace);
  const auto base = out["baseTimeNanoseconds"].get<std::int64_t>();
  const std::vector<json> calls = of_category(out, "lockstep");
  ASSERT_EQ(calls.size(), 8U);
  EXPECT_EQ(calls[0]["name"], "lockstep:all_reduce");
  EXPECT_EQ(calls[0]["ts"], static_cast<double>(trace.start_ns - base) / 1e3) << "7 ms by steady_clock";
  EXPECT_EQ(calls[0]["dur"], 2000.0);
  EXPECT_EQ(calls[0]["args"], json({{"group", "world"},
                                    {"backend", "shm"},
                                    {"rank", 2},
                                    {"sequence", 1},
                                    {"bytes", 4000},
                                    {"call", "all_reduce(float32[1000], sum)"},
                                    {"purpose", ""},
                                    {"state", "done"}}));
  EXPECT_EQ(calls[1]["args"]["state"], "failed");
  EXPECT_EQ(calls[2]["args"]["state"], "posted");
  EXPECT_EQ(calls[2]["dur"], 3000.0) << "to the end of the profile";
  EXPECT_EQ(calls[3]["args"]["peer"], 3);
  EXPECT_EQ(calls[3]["args"]["tag"], 17);
  EXPECT_FALSE(calls[3]["args"].contains("sequence"));
  EXPECT_EQ(calls[4]["args"]["group"], "row");
  EXPECT_EQ(calls[5]["args"]["purpose"], "gradients");

  std::map<std::int64_t, double> busy_until;
  std::map<std::int64_t, std::string> names;
  for (const json& event : out["traceEvents"]) {
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
  }
  for (const json& call : calls) {
    double& until = busy_until[call["tid"]];
    EXPECT_GE(call["ts"].get<double>(), until);
    until = call["ts"].get<double>() + call["dur"].get<double>();
    EXPECT_EQ(names[call["tid"]], "lockstep " + call["args"]["group"].get<std::string>() + " (shm)");
  }
  EXPECT_EQ(busy_until.size(), 4U) << "two tracks for each group";
}

TEST(ChromeTrace, EachRankHasItsFile) {
  EXPECT_EQ(path_of_rank("trace.json", 0, 1), "trace.json");
  EXPECT_EQ(path_of_rank("trace.json", 0, 4), "trace_rank_0.json");
  EXPECT_EQ(path_of_rank("runs/a.b/trace", 3, 4), "runs/a.b/trace_rank_3");
  EXPECT_EQ(path_of_rank("{rank}/trace_{rank}.json", 12, 16), "12/trace_12.json");
  EXPECT_EQ(path_of_rank("trace_{rank}.json", 0, 1), "trace_0.json");
}

}  // namespace
}  // namespace lockstep
