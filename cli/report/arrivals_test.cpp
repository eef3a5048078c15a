#include "cli/report/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/report/buckets.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t MS = 1'000'000;

ReportCall call_at(std::int64_t start_ms, std::uint64_t sequence, int rank, bool is_bucket = true,
                   const std::string& group = "world") {
  return {"all_reduce", group, rank, sequence, 4000, is_bucket, {start_ms * MS, (start_ms + 5) * MS}};
}

TEST(ReportArrivals, TheLatestStartIsLast) {
  const ClockCalls calls = {
      "",
      {{0, {call_at(10, 1, 0), call_at(20, 2, 0), call_at(30, 3, 0, false), call_at(40, 4, 0)}},
       {1, {call_at(13, 1, 1), call_at(21, 2, 1), call_at(29, 3, 1, false)}},
       {2, {call_at(11, 1, 2), call_at(27, 2, 2), call_at(28, 3, 2, false), call_at(45, 4, 2)}}}};
  const std::vector<RankArrivals> ranks = arrivals_of(calls);
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(ranks[0].buckets.last, 0U);
  EXPECT_EQ(ranks[0].buckets.collectives, 2U) << "#4 was not made by rank 1";
  EXPECT_EQ(ranks[0].others.last, 1U);
  EXPECT_THAT(ranks[0].others.lateness, ElementsAre(2 * MS));
  EXPECT_EQ(ranks[1].buckets.last, 1U);
  EXPECT_THAT(ranks[1].buckets.lateness, ElementsAre(3 * MS));
  EXPECT_EQ(ranks[2].buckets.last, 1U);
  EXPECT_THAT(ranks[2].buckets.lateness, ElementsAre(7 * MS));
  const std::string html = arrivals_html(calls);
  EXPECT_THAT(html,
              HasSubstr("<td class=\"n\">1 of 2</td><td class=\"n\">7.00</td><td class=\"n\">7.00</td>"));
}

TEST(ReportArrivals, GroupsThatOnlyShareANameDoNotCount) {
  const ClockCalls calls = {"",
                            {{0, {call_at(10, 1, 0, true, "row")}},
                             {1, {call_at(12, 1, 1, true, "row")}},
                             {2, {call_at(11, 1, 0, true, "row")}},
                             {3, {call_at(15, 1, 1, true, "row")}}}};
  EXPECT_TRUE(arrivals(calls).empty());
}

RankTrace recorded(int rank, const std::string& host, std::int64_t start_ms, std::int64_t read_ms) {
  GroupTrace group{.name = "world", .backend = "hierarchical", .rank = rank, .members = {0, 1, 2, 3}};
  group.records = {{.number = 1,
                    .sequence = 1,
                    .call = {.purpose = Purpose::GRADIENTS, .count = 1},
                    .start_ns = start_ms * MS,
                    .state = CallState::POSTED}};
  return {.rank = rank, .size = 4, .host = host, .job = "1f", .read_ns = read_ms * MS, .groups = {group}};
}

TEST(ReportArrivals, FlightRecordersAreComparedWithinAHost) {
  const std::vector<ClockCalls> clocks = calls_of(std::vector<RankTrace>{
      recorded(0, "a", 10, 100), recorded(1, "a", 30, 100), recorded(2, "b", 9000, 9100),
      recorded(3, "b", 8000, 9100), recorded(1, "a", 5, 50)});
  ASSERT_EQ(clocks.size(), 2U);
  EXPECT_EQ(clocks[0].name, "host a");
  ASSERT_EQ(clocks[0].ranks.size(), 2U) << "the latest records of rank 1 alone";
  EXPECT_EQ(clocks[0].ranks[1].calls[0].time, (Span{30 * MS, 100 * MS})) << "posted: until it was read";
  EXPECT_EQ(arrivals_of(clocks[0])[1].buckets.last, 1U);
  EXPECT_THAT(arrivals_of(clocks[0])[1].buckets.lateness, ElementsAre(20 * MS));
  EXPECT_EQ(arrivals_of(clocks[1])[0].rank, 2);
  EXPECT_EQ(arrivals_of(clocks[1])[0].buckets.last, 1U);
}

TEST(ReportTimeline, ShowsTheStepOfMedianLength) {
  RankProfile profile{
      .path = "a", .rank = 0, .steps = {{0, 50 * MS}, {50 * MS, 60 * MS}, {60 * MS, 80 * MS}}};
  RankProfile other{.path = "b", .rank = 1, .steps = {{0, 50 * MS}, {50 * MS, 61 * MS}, {61 * MS, 82 * MS}}};
  profile.calls = {call_at(55, 1, 0), call_at(62, 2, 0)};
  other.calls = {call_at(55, 1, 1), call_at(66, 2, 1)};
  const std::vector<RankProfile> profiles = {profile, other};
  const auto window = window_of(profiles, calls_of(profiles));
  ASSERT_TRUE(window);
  EXPECT_EQ(window->time, (Span{60 * MS, 82 * MS}));
  EXPECT_THAT(window->what, HasSubstr("step 2 "));
  const std::string html = timeline_html(profiles, calls_of(profiles));
  EXPECT_THAT(html, HasSubstr("rank 1: all_reduce #2 on group &quot;world&quot;, 4000 bytes, from 6 ms for "
                              "5.00 ms; came last, 4.00 ms behind the first"));
  EXPECT_THAT(html, Not(HasSubstr("rank 0: all_reduce #1")));
}

TEST(ReportTimeline, WithoutStepsShowsTheLastCalls) {
  EXPECT_FALSE(window_of({}, {"", {{0, {}}}}));
  RankCalls rank{.rank = 0, .calls = {}};
  for (int i = 0; i < 100; ++i) rank.calls.push_back(call_at(10 * i, static_cast<std::uint64_t>(i) + 1, 0));
  const auto window = window_of({}, {"", {rank}});
  ASSERT_TRUE(window);
  EXPECT_EQ(window->time, (Span{760 * MS, 995 * MS})) << "24 of 100";
}

}  // namespace
}  // namespace lockstep::cli
