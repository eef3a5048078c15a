#include "lockstep/launch/failure_report.h"

#include <gmock/gmock.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Optional;

RankResult death(int rank, ExitStatus status, int after_ms, bool was_stopped = false) {
  RankResult result;
  result.rank = rank;
  result.pid = 100 + rank;
  result.status = status;
  result.ended_after = milliseconds(after_ms);
  result.was_stopped = was_stopped;
  return result;
}

std::optional<std::size_t> first(const std::vector<RankResult>& deaths) { return first_failure(deaths); }

TEST(FirstFailure, IsNoneWhenAllWentWell) {
  EXPECT_EQ(first({}), std::nullopt);
  EXPECT_EQ(first({death(0, {0, 0}, 5), death(1, {0, 0}, 6)}), std::nullopt);
}

TEST(FirstFailure, IsNoneWhenTheLauncherStoppedThem) {
  EXPECT_EQ(first({death(0, {0, SIGTERM}, 5, true), death(1, {1, 0}, 6, true)}), std::nullopt);
}

TEST(FirstFailure, IsTheEarliest) {
  EXPECT_THAT(first({death(2, {0, 0}, 1), death(1, {7, 0}, 5), death(0, {1, 0}, 6)}), Optional(1U));
}

TEST(FirstFailure, IsTheKilledRankThatSurvivorsOvertook) {
  EXPECT_THAT(first({death(0, {1, 0}, 500), death(2, {0, SIGKILL}, 520)}), Optional(1U));
  EXPECT_THAT(first({death(0, {0, SIGABRT}, 500), death(2, {0, SIGSEGV}, 520)}), Optional(1U));
}

TEST(FirstFailure, StaysTheEarliestWhenTheKilledRankCameMuchLater) {
  EXPECT_THAT(first({death(0, {1, 0}, 500), death(2, {0, SIGKILL}, 700)}), Optional(0U));
}

TEST(FirstFailure, StaysTheEarliestOfSeveralKilledOrAborted) {
  EXPECT_THAT(first({death(3, {0, SIGKILL}, 5), death(2, {0, SIGSEGV}, 6)}), Optional(0U));
  EXPECT_THAT(first({death(3, {4, 0}, 5), death(2, {0, SIGABRT}, 6)}), Optional(0U));
  EXPECT_THAT(first({death(3, {4, 0}, 5), death(2, {0, SIGKILL}, 6, true)}), Optional(0U));
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
