#include "lockstep/launch/failure_report.h"

#include <gmock/gmock.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

RankResult death(int rank, ExitStatus status, int after_ms, bool was_stopped = false) {
  RankResult result;
  result.rank = rank;
  result.pid = 100 + rank;
  result.status = status;
  result.ended_after = milliseconds(after_ms);
  result.was_stopped = was_stopped;
  return result;
}

FailureReport report() {
  FailureReport failure{"00ff", "node7", {"./train"}, "/logs", {}};
  failure.result.ranks = {death(0, {1, 0}, 12400), death(1, {0, 0}, 9000), death(2, {0, SIGKILL}, 12345),
                          death(3, {0, SIGTERM}, 12600, true)};
  failure.result.ranks[2].last_lines = {"epoch 3", "\x1b[2Jlockstep: all is well"};
  failure.result.first_failure = 2;
  failure.result.exit_code = 137;
  return failure;
}

TEST(FailureSummary, NamesTheCauseItsLastLinesAndTheVictims) {
  EXPECT_THAT(failure_summary(report()),
              ElementsAre("rank 2 of 4 failed first: killed by SIGKILL, pid 102 on node7, after 12.3 s",
                          "its last lines:", "  [2] epoch 3", "  [2] \\x1b[2Jlockstep: all is well",
                          "because of it: rank 0 exit code 1, rank 3 stopped", "more in /logs"));
}

TEST(FailureSummary, SaysWhoKilledARankWhereThatIsKnown) {
  FailureReport failure = report();
  failure.result.ranks[2].killer = " by the kernel's out-of-memory killer";
  EXPECT_EQ(
      failure_summary(failure)[0],
      "rank 2 of 4 failed first: killed by SIGKILL by the kernel's out-of-memory killer, pid 102 on node7, "
      "after 12.3 s");
}

TEST(FailureSummary, OfARankThatLeftSaysWhoNeededIt) {
  FailureReport failure = report();
  failure.result.first_failure = 1;
  failure.result.cause = FirstCause{1, CauseKind::LEFT, milliseconds(9000), 0};
  failure.result.ranks[0].last_lines = {"a", "b", "rank 1 has left the group", "d"};
  EXPECT_THAT(
      failure_summary(failure),
      ElementsAre("rank 1 of 4 ended first: exit code 0, while other ranks needed it, pid 101 on node7, "
                  "after 9.0 s",
                  "it printed nothing", "the last lines of rank 0, which found it:", "  [0] b",
                  "  [0] rank 1 has left the group", "  [0] d",
                  "because of it: rank 0 exit code 1, rank 2 killed by SIGKILL, rank 3 stopped",
                  "more in /logs"));
}

TEST(FailureSummary, HasNoLineThatGrowsWithTheJob) {
  FailureReport failure = report();
  failure.result.ranks.clear();
  constexpr int RANKS = 256;
  for (int rank = 0; rank < RANKS; ++rank) {
    const bool stopped = rank == 7 || rank > 250;
    failure.result.ranks.push_back(death(rank, {stopped ? 0 : 1, stopped ? SIGTERM : 0}, 100, stopped));
  }
  EXPECT_THAT(failure_summary(failure)[2],
              "because of it: ranks 0, 1, 3-6, 8-250 exit code 1, ranks 7, 251-255 stopped");
  for (int rank = 0; rank < RANKS; ++rank)
    failure.result.ranks[static_cast<std::size_t>(rank)].status = {rank, 0};
  for (const auto& line : failure_summary(failure)) EXPECT_LT(line.size(), 400U) << line;
}

TEST(FailureInALine, HasTheLastWords) {
  FailureReport failure = report();
  RankResult& rank = failure.result.ranks[2];
  rank.last_lines = {"cannot read \x1b",
                     "Exception raised from f at g.cpp:1 (most recent call first):", "frame #0: f",
                     "  ... and 20 more frames", ""};
  EXPECT_EQ(
      failure_in_a_line(rank, {6, CauseKind::FAILED, milliseconds(12345)}, "node7"),
      "rank 6 failed first: killed by SIGKILL, pid 102 on node7, after 12.3 s; its last words: cannot read "
      "\\x1b");
  rank.last_lines.clear();
  EXPECT_EQ(
      failure_in_a_line(rank, {6, CauseKind::STOOD, milliseconds(2000)}, "node7"),
      "rank 6 failed first: it was stopped (SIGSTOP) while other ranks waited for it, pid 102 on node7, "
      "after 2.0 s; it printed nothing");
}

TEST(FailureJson, IsValidWhateverTheRankPrinted) {
  FailureReport failure = report();
  failure.result.ranks[2].last_lines = {"\xff\xfe \"quoted\"", std::string("\0", 1)};
  const auto record = nlohmann::json::parse(failure_json(failure));
  EXPECT_EQ(record["first_failing_rank"], 2);
  EXPECT_EQ(record["ranks"][2]["signal"], "SIGKILL");
  EXPECT_EQ(record["ranks"][0]["exit_code"], 1);
  std::vector<std::string> roles;
  for (const auto& rank : record["ranks"]) roles.push_back(rank["role"]);
  EXPECT_THAT(roles, ElementsAre("victim", "finished", "cause", "stopped"));
}

}  // namespace
}  // namespace lockstep
