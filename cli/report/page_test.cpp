#include "cli/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t MILLISECOND = 1'000'000;

RankProfile profile_of(int rank) {
  RankProfile profile{.path = "trace.json", .rank = rank, .world_size = 4};
  for (int i = 0; i < 3; ++i) {
    const std::int64_t start = i * 100 * MILLISECOND;
    profile.steps.push_back({start, start + 100 * MILLISECOND});
    profile.operations.push_back({start + 10 * MILLISECOND, start + 60 * MILLISECOND});
    profile.backward.push_back({start + 30 * MILLISECOND, start + 60 * MILLISECOND});
    profile.in_flight.push_back({start + 50 * MILLISECOND, start + (75 + rank) * MILLISECOND});
    profile.calls.push_back({"all_reduce",
                             "world",
                             rank,
                             static_cast<std::uint64_t>(i) + 1,
                             4000,
                             true,
                             {start + (50 + rank) * MILLISECOND, start + (75 + rank) * MILLISECOND}});
  }
  return profile;
}

TEST(ReportPage, SaysWhatIsMissing) {
  const std::string page = report_page({.title = "runs/7"});
  EXPECT_THAT(page, AllOf(HasSubstr("No metrics files"),
                          HasSubstr("No profiler traces: step times need profile(...)"),
                          HasSubstr("No profiler traces and no flight-recorder files")));
  ReportInputs inputs{.title = "runs/7"};
  inputs.profiles = {RankProfile{.path = "a", .rank = 0, .world_size = 1}};
  EXPECT_THAT(report_page(inputs), AllOf(HasSubstr("have no steps"), HasSubstr("have no collective")));
  inputs.profiles = {profile_of(0), profile_of(1)};
  EXPECT_THAT(report_page(inputs), HasSubstr("Profiler traces of 2 of 4 ranks"));
}

TEST(ReportPage, NeedsNothingElse) {
  const std::string page = report_page({.title = "runs/7"});
  EXPECT_THAT(page, HasSubstr("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                              "style-src 'unsafe-inline'\">"));
  EXPECT_THAT(page, AllOf(HasSubstr("prefers-color-scheme: dark"), Not(HasSubstr("<script")),
                          Not(HasSubstr("http:")), Not(HasSubstr("https:")), Not(HasSubstr("url("))));
}

TEST(ReportPage, HasTheValuesOfCurves) {
  ReportInputs inputs{.title = "runs/7"};
  inputs.metrics = {parse_json_lines(
      "{\"step\": 0, \"loss\": 2}\n{\"step\": 50, \"loss\": 1}\n{\"step\": 100, \"loss\": 0}\n",
      "run.jsonl")};
  const std::string page = report_page(inputs);
  EXPECT_THAT(page, HasSubstr("<title>loss, step 50: 1</title>"));
  // The middle of x is between 64 and 454, the middle of y between 26 and 216.
  EXPECT_THAT(page, HasSubstr("cx=\"259\" cy=\"121\""));
  EXPECT_THAT(page, HasSubstr("<td class=\"n\">0 at 100</td><td class=\"n\">2 at 0</td>"));
}

TEST(ReportPage, SaysWhereALossIsNoNumber) {
  ReportInputs inputs{.title = "runs/7"};
  inputs.metrics = {
      parse_json_lines("{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": \"NaN\"}\n", "run.jsonl")};
  EXPECT_THAT(report_page(inputs),
              HasSubstr("loss: 1 of 2 values are NaN or infinite, the first at step 2."));
}

TEST(ReportPage, HasThePartsOfSteps) {
  ReportInputs inputs{.title = "runs/7"};
  inputs.profiles = {profile_of(0), profile_of(1)};
  const std::string page = report_page(inputs);
  EXPECT_THAT(page, AllOf(HasSubstr("<title>rank 0, backward: 30.0 ms</title>"),
                          HasSubstr("<title>rank 0, other operations (forward, optimizer): 20.0 ms</title>"),
                          HasSubstr("<title>rank 0, exposed communication: 15.0 ms</title>"),
                          HasSubstr("<title>rank 1, exposed communication: 16.0 ms</title>"),
                          HasSubstr("<title>rank 1, rest: 34.0 ms</title>")));
  EXPECT_THAT(page, HasSubstr("<td class=\"n\">1</td><td class=\"n\">3 of 3</td><td class=\"n\">1.00</td>"));
}

TEST(ReportPage, OfManyRanksDrawsTheFastestTheMedianAndTheSlowest) {
  ReportInputs inputs{.title = "runs/7"};
  for (int rank = 0; rank < 7; ++rank) {
    inputs.profiles.push_back(profile_of(rank));
    inputs.profiles.back().steps[2].end += rank * MILLISECOND;
  }
  EXPECT_THAT(report_page(inputs), AllOf(HasSubstr("<title>fastest rank, step 2: 100 ms</title>"),
                                         HasSubstr("<title>median rank, step 2: 103 ms</title>"),
                                         HasSubstr("<title>slowest rank, step 2: 106 ms</title>")));
}

TEST(ReportPage, EscapesEveryName) {
  const std::string hostile = "</title><script>alert('\"&\")</script>";
  ReportInputs inputs{.title = hostile};
  inputs.metrics = {parse_csv_metrics("step,<script>k,<script>t\n1,2,<script>v\n,,\"<script>\"\"remark\"\n",
                                      "<script>.csv")};
  inputs.metrics.push_back(inputs.metrics[0]);
  inputs.profiles = {profile_of(0), profile_of(1)};
  for (RankProfile& profile : inputs.profiles) {
    profile.path = hostile;
    for (ReportCall& call : profile.calls) call.verb = call.group = hostile;
  }
  GroupTrace group{.name = hostile, .backend = hostile, .members = {0}, .failure = hostile};
  group.records = {{.number = 1, .sequence = 1, .end_ns = 5}};
  inputs.recorders = {{.program = hostile, .host = hostile, .job = hostile, .groups = {group}}};
  inputs.recorder_files = {{hostile, 1}};
  const std::string page = report_page(inputs);
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("</script")), Not(HasSubstr("alert('"))));
  EXPECT_THAT(page, AllOf(HasSubstr("&lt;script&gt;k"), HasSubstr("&lt;script&gt;&quot;remark"),
                          HasSubstr("&quot;&lt;script&gt;t&quot;")));
}

}  // namespace
}  // namespace lockstep::cli
