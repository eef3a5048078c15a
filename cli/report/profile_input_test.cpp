#include "cli/report/profile_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using EventJson = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t BASE = 1'800'000'000'000'000'000;

EventJson event(const char* category, const char* name, double from_us, double to_us,
                EventJson args = EventJson::object()) {
  return {{"ph", "X"},     {"cat", category},        {"name", name},
          {"ts", from_us}, {"dur", to_us - from_us}, {"args", args}};
}

std::string trace_of(const EventJson& events) {
  return EventJson({{"distributedInfo", {{"rank", 1}, {"world_size", 2}}},
                    {"baseTimeNanoseconds", BASE},
                    {"traceEvents", events}})
      .dump();
}

TEST(ReportSpans, AreSets) {
  const Spans spans = merged({{5, 7}, {0, 2}, {1, 3}, {3, 4}, {9, 9}});
  EXPECT_THAT(spans, ElementsAre(Span{0, 4}, Span{5, 7}));
  EXPECT_THAT(without(spans, {{1, 2}, {3, 6}}), ElementsAre(Span{0, 1}, Span{2, 3}, Span{6, 7}));
  EXPECT_THAT(without(spans, {}), ElementsAre(Span{0, 4}, Span{5, 7}));
  EXPECT_THAT(without(spans, {{-1, 10}}), ElementsAre());
  EXPECT_EQ(length_within(spans, {3, 6}), 2);
  EXPECT_EQ(length_within(spans, {4, 5}), 0);
}

// Sets of points are what spans mean: every pair of sets on eight points.
TEST(ReportSpans, WithoutIsTheDifferenceOfPoints) {
  const auto spans_of = [](unsigned bits) {
    Spans spans;
    for (int i = 0; i < 8; ++i)
      if ((bits >> static_cast<unsigned>(i) & 1U) != 0) spans.push_back({i, i + 1});
    return merged(spans);
  };
  for (unsigned a = 0; a < 256; ++a)
    for (unsigned b = 0; b < 256; ++b)
      ASSERT_EQ(merged(without(spans_of(a), spans_of(b))), spans_of(a & ~b)) << a << " without " << b;
}

TEST(ReportProfile, HasThePartsOfEachStep) {
  const EventJson backward = {{"Fwd thread id", 1}};
  const EventJson bucket = {
      {"group", "world"}, {"rank", 1}, {"sequence", 7}, {"bytes", 4000}, {"purpose", "gradients"}};
  const EventJson message = {{"group", "world"}, {"rank", 1}, {"peer", 0}, {"tag", 0}};
  const RankProfile profile =
      parse_profile(trace_of({event("user_annotation", "ProfilerStep#4", 1000, 1100),
                              event("user_annotation", "step", 0, 100),
                              event("user_annotation", "other", 0, 500),
                              {{"ph", "M"}, {"name", "thread_name"}},
                              event("cpu_op", "aten::linear", 10, 30),
                              event("cpu_op", "aten::addmm", 15, 25),
                              event("cpu_op", "AddmmBackward0", 40, 60, backward),
                              event("cpu_op", "aten::mm", 45, 55),
                              event("lockstep", "lockstep:all_reduce", 50, 75, bucket),
                              event("lockstep", "lockstep:send", 90, 120, message)}),
                    "trace_1.json");
  EXPECT_EQ(profile.rank, 1);
  EXPECT_EQ(profile.world_size, 2);
  ASSERT_EQ(profile.steps.size(), 2U);
  EXPECT_EQ(profile.steps[0], (Span{BASE, BASE + 100'000})) << "by start";
  const StepParts parts = parts_of(profile, profile.steps[0]);
  EXPECT_EQ(parts.backward, 20'000);
  EXPECT_EQ(parts.operations, 20'000) << "10 to 30; 45 to 55 is backward";
  EXPECT_EQ(parts.communication, 25'000) << "60 to 75, and 90 to 100 of the message";
  EXPECT_EQ(parts.rest, 35'000) << "100 - 20 - 20 - 25";
  ASSERT_EQ(profile.calls.size(), 1U) << "messages have no sequence";
  EXPECT_EQ(profile.calls[0].verb, "all_reduce");
  EXPECT_EQ(profile.calls[0].sequence, 7U);
  EXPECT_TRUE(profile.calls[0].is_bucket);
  EXPECT_EQ(profile.calls[0].time, (Span{BASE + 50'000, BASE + 75'000}));
}

TEST(ReportProfile, MeansLeaveOutTheFirstStep) {
  EventJson events = {event("user_annotation", "step", 0, 900), event("user_annotation", "step", 1000, 1100)};
  EXPECT_EQ(mean_parts(parse_profile(trace_of(events), "a")).rest, 500'000) << "of two steps both";
  events.push_back(event("user_annotation", "step", 2000, 2300));
  EXPECT_EQ(mean_parts(parse_profile(trace_of(events), "a")).rest, 200'000) << "(100 + 300) / 2";
  EXPECT_EQ(mean_parts(parse_profile(trace_of(EventJson::array()), "a")).rest, 0);
}

TEST(ReportProfile, ABrokenOneIsNamed) {
  const std::string whole = trace_of(EventJson::array({event("cpu_op", "a", 0, 1)}));
  for (const std::string& text :
       {whole.substr(0, whole.size() / 2), std::string("[]"), std::string("{}"),
        std::string("{\"distributedInfo\": {}}"),
        trace_of(EventJson::array({event("cpu_op", "a", 1e300, 2e300)})),
        trace_of(EventJson::array({event("cpu_op", "a", 5, 1)})), trace_of(event("cpu_op", "a", 0, 1)),
        trace_of(EventJson::array({EventJson({{"ph", "X"}, {"cat", "cpu_op"}, {"ts", "x"}})}))}) {
    EXPECT_THAT([&] { parse_profile(text, "trace_1.json"); },
                ThrowsMessage<FormatError>(AllOf(HasSubstr("\"trace_1.json\" is not a profiler trace"))))
        << text;
  }
}

}  // namespace
}  // namespace lockstep::cli
