// The harness of multi-rank tests is watched from outside: each way to fail must be reported, with its rank,
// and must not hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Result {
  int exit_code = -1;
  std::string output;
};

Result run_command(const std::string& command) {
  Result result;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer;
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), got);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

Result run(const std::string& specimen) {
  return run_command("exec '" LOCKSTEP_SPECIMENS "' --gtest_filter='Specimen/" + specimen + "' 2>&1");
}

TEST(RanksHarness, PassesWhenEveryRankPasses) {
  const Result result = run("Passes.*");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("[       OK ] Specimen/Passes.shm_1"),
                    HasSubstr("[       OK ] Specimen/Passes.shm_3"), HasSubstr("[  PASSED  ] 2 tests")));
}

TEST(RanksHarness, NamesTheRankAndLineOfAFailure) {
  const Result result = run("FailsOnRankOne.*");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("rank 1 of 3: Expected: (rank()) != (1)"), HasSubstr("on purpose"),
                    HasSubstr("harness_specimens.cpp:"), HasSubstr("I am rank 1"),
                    Not(HasSubstr("rank 0 of 3")), Not(HasSubstr("rank 2 of 3"))));
}

TEST(RanksHarness, ShowsTwentyFailuresOfARankAndCountsTheRest) {
  const Result result = run("FailsOften.*");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("Which is: 19"), Not(HasSubstr("Which is: 20")),
                                   HasSubstr("980 more failures are not shown")));
}

TEST(RanksHarness, ReportsAnException) {
  const Result result = run("Throws.*");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("rank 1 of 2: Failed\nthe body threw: thrown on purpose"));
}

TEST(RanksHarness, CountsASkippedRankAsAFailure) {
  const Result result = run("Skips.*");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("rank 1 of 2: skipped the test, which counts as a failure"));
  EXPECT_THAT(result.output, HasSubstr("no such device"));
}

TEST(RanksHarness, ReportsADeathWithItsSignalAndLastWords) {
  const Result result = run("Dies.*");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("rank 1 of 2 died of signal 9 (Killed)"), HasSubstr("last words of rank 1"),
                    Not(HasSubstr("last words of rank 0"))));
}

TEST(RanksHarness, AcceptsADeclaredDeathOnly) {
  EXPECT_EQ(run("DiesAsDeclared.*").exit_code, 0);
  EXPECT_THAT(run("DeclaredButLives.*").output,
              HasSubstr("rank 1 of 2 should have died of signal 9 and did not"));
  EXPECT_THAT(run("DeclaredButDiesOfAnother.*").output, HasSubstr("rank 1 of 2 died of signal 15"));
}

TEST(RanksHarness, ReportsARankThatLeavesBeforeOrAfterTheTest) {
  EXPECT_THAT(run("Exits.*").output, HasSubstr("rank 1 of 2 exited with code 0 before it had run the test"));
  EXPECT_THAT(run("ExitsBadlyAfterwards.*").output,
              HasSubstr("rank 1 of 2 exited with code 7 after the test"));
}

TEST(RanksHarness, EndsAHangAndSaysWhereItWas) {
  const Result result = run("Hangs.*");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 1 of 2 was still running at the deadline and was killed"),
                                   HasSubstr("S (sleeping)"), HasSubstr("rank 1 is here"),
                                   Not(HasSubstr("rank 0 is here"))));
}

TEST(RanksHarness, EndsAStoppedRank) {
  EXPECT_THAT(run("Stops.*").output,
              AllOf(HasSubstr("rank 1 of 2 was still running"), HasSubstr("T (stopped)")));
}

// "Z (zombie)" and the like; empty when there is no such process. A specimen has written the pid.
std::string state_of(const std::string& pid_file) {
  pid_t pid = 0;
  std::ifstream(pid_file.c_str()) >> pid;
  std::string line;
  for (std::ifstream status("/proc/" + std::to_string(pid) + "/status"); std::getline(status, line);) {
    if (line.starts_with("State:")) return line.substr(7);
  }
  return pid > 0 ? "" : "no pid";
}

void wait_until_gone(const std::string& pid_file) {  // the limit is CTest's
  for (std::string state = "?"; !state.empty() && !state.starts_with("Z");) {
    state = state_of(pid_file);
    ASSERT_NE(state, "no pid");
  }
  std::remove(pid_file.c_str());
}

TEST(RanksHarness, EndsWhatARankHasStarted) {
  EXPECT_EQ(run("LeavesAGrandchild.*").exit_code, 0);
  wait_until_gone("grandchild.pid");
}

TEST(RanksHarness, RanksDieWithTheProcessThatWatches) {
  EXPECT_EQ(run("LosesItsWatcher.*").exit_code, -1);
  wait_until_gone("orphan.pid");
}

TEST(RanksHarness, GivesRanksTheLaunchersEnvironment) {
  const Result result = run("SeesTheLaunchersEnvironment.*");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

// ---- run_case and the fork server

Result run_case(const std::string& name, const std::string& before = "") {
  return run_command(before + " '" LOCKSTEP_RUN_CASE "' '" LOCKSTEP_SPECIMENS "' --gtest_filter=Case." +
                     name + " 2>&1");
}

int number_behind(const std::string& word, const std::string& text) {
  const auto at = text.find(word + " ");
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + word.size() + 1);
}

// A number that was not found is -1, and kill() would take that for every process of this user, CTest among
// them.
void kill_one(pid_t pid) {
  ASSERT_GT(pid, 1);
  EXPECT_EQ(kill(pid, SIGKILL), 0);
}

TEST(RunCase, HasTheOutputAndStatusOfItsCase) {
  const Result passed = run_case("Passes");
  EXPECT_EQ(passed.exit_code, 0) << passed.output;
  EXPECT_THAT(passed.output,
              AllOf(HasSubstr("[  PASSED  ] 1 test"), HasSubstr("static objects are destroyed")));
  const Result failed = run_case("Fails");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.output, HasSubstr("[  FAILED  ] Case.Fails"));
  const Result killed = run_case("IsKilled");
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL);
  EXPECT_THAT(killed.output, HasSubstr("ended by signal 9"));
}

TEST(RunCase, ItsCaseHasItsFolderAndEnvironment) {
  EXPECT_THAT(run_case("SeesItsPlace", "cd / && CASE_VARIABLE=first").output, HasSubstr("in / with first"));
  EXPECT_THAT(run_case("SeesItsPlace", "cd /tmp && CASE_VARIABLE=second").output,
              HasSubstr("in /tmp with second"));
}

TEST(RunCase, CasesShareAServerUntilItEnds) {
  const int server = number_behind("server", run_case("Passes").output);
  EXPECT_EQ(number_behind("server", run_case("Passes").output), server);
  kill_one(server);
  const Result next =
      run_case("Passes");  // by a new server, or, while the old one is still ending, by itself
  EXPECT_EQ(next.exit_code, 0) << next.output;
  EXPECT_NE(number_behind("server", next.output), server);
}

TEST(RunCase, RunsTheBinaryItselfWhereAskedTo) {
  const int server = number_behind("server", run_case("Passes").output);
  const Result own = run_case("Passes", "LOCKSTEP_FORK_SERVER=0");
  EXPECT_EQ(own.exit_code, 0);
  EXPECT_NE(number_behind("server", own.output), server);
}

// The shell says its number before it becomes run_case: the line of the case is behind it in any case.
TEST(RunCase, ItsCaseEndsWithIt) {
  FILE* pipe = popen(
      "echo client $$; exec '" LOCKSTEP_RUN_CASE "' '" LOCKSTEP_SPECIMENS "' --gtest_filter=Case.Waits", "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 4096> buffer;
  while (number_behind("case", output) < 0 && fgets(buffer.data(), buffer.size(), pipe) != nullptr)
    output += buffer.data();
  kill_one(number_behind("client", output));
  // Ends when nobody holds the pipe's other end any more: neither run_case nor the case.
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) output += buffer.data();
  pclose(pipe);
  EXPECT_GT(number_behind("case", output), 1) << output;
}

}  // namespace
}  // namespace lockstep
