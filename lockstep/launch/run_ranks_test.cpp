#include "lockstep/launch/run_ranks.h"

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "lockstep/launch/prepare.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/descendants.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;
using testing::TempFolder;
using namespace std::chrono_literals;

LaunchSpec shell(int ranks, const std::string& script) {
  LaunchSpec spec;
  spec.command = {"sh", "-c", script};
  spec.ranks = ranks;
  spec.log_base = "";
  spec.time_limit = 60s;
  return spec;
}

TEST(RunRanks, CollectsStatusAndOutputOfEveryRank) {
  const RunResult result = run_ranks(shell(3, "echo $RANK of $WORLD_SIZE; echo error >&2"));
  ASSERT_THAT(result.ranks, SizeIs(3));
  for (const auto& rank : result.ranks) {
    EXPECT_TRUE(rank.status.success());
    EXPECT_THAT(rank.output, HasSubstr(std::to_string(rank.rank) + " of 3\n"));
    EXPECT_THAT(rank.output, HasSubstr("error\n"));
  }
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.first_failure, std::nullopt);
}

TEST(RunRanks, StopsTheOthersWhenOneFails) {
  const TempFolder folder;
  LaunchSpec spec = shell(3,
                          "cd \"$PLACE\"; trap '' TERM; touch $RANK; "
                          "[ $RANK = 1 ] && { until [ -e 0 ] && [ -e 2 ]; do sleep 0.01; done; exit 3; }; "
                          "sleep 1000 & wait; sleep 1000");
  spec.environment = {{"PLACE", folder.path()}};
  spec.report_window = 10ms;
  spec.failure_grace = 10ms;
  const RunResult result = run_ranks(spec);
  EXPECT_THAT(result.first_failure, Optional(1));
  EXPECT_EQ(result.exit_code, 3);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(rank)].status.signal, SIGKILL);
    EXPECT_TRUE(result.ranks[static_cast<std::size_t>(rank)].was_stopped);
  }
}

TEST(RunRanks, LetsSurvivorsSayWhatTheySawBeforeTheyAreStopped) {
  const TempFolder folder;
  LaunchSpec spec = shell(3,
                          "cd \"$PLACE\"; [ $RANK = 1 ] && { touch dead; kill -KILL $$; }; "
                          "while [ ! -e dead ]; do sleep 0.01; done; sleep 0.1; echo rank 1 is dead; exit 5");
  spec.environment = {{"PLACE", folder.path()}};
  spec.report_window = 60s;
  const RunResult result = run_ranks(spec);
  EXPECT_THAT(result.first_failure, Optional(1));
  EXPECT_EQ(result.exit_code, 137);
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(result.ranks[rank].output, "rank 1 is dead\n");
    EXPECT_EQ(result.ranks[rank].status.code, 5);
    EXPECT_FALSE(result.ranks[rank].was_stopped);
  }
}

TEST(RunRanks, LetsSurvivorsFinishWhenAskedTo) {
  LaunchSpec spec = shell(3, "[ $RANK = 1 ] && kill -KILL $$; sleep 0.1; echo survived");
  spec.stop_on_failure = false;
  spec.report_window = 0ms;
  const RunResult result = run_ranks(spec);
  EXPECT_EQ(result.ranks[1].status.signal, SIGKILL);
  EXPECT_EQ(result.ranks[0].output, "survived\n");
  EXPECT_EQ(result.ranks[2].output, "survived\n");
  EXPECT_EQ(result.exit_code, 137);
}

TEST(RunRanks, KillsEverythingAtTheTimeLimit) {
  LaunchSpec spec = shell(2, "echo begun; trap '' TERM; setsid sleep 1000 & wait; sleep 1000");
  spec.time_limit = 1s;
  const RunResult result = run_ranks(spec);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, EXIT_TIMED_OUT);
  for (const auto& rank : result.ranks) {
    EXPECT_EQ(rank.status.signal, SIGKILL);
    EXPECT_EQ(rank.output, "begun\n");
  }
  EXPECT_THAT(children_of_this_process(), IsEmpty());
}

TEST(RunRanks, LeavesTheCallersOtherChildrenAlone) {
  SpawnRequest request;
  request.executable = "/bin/sleep";
  request.arguments = {"sleep", "1000"};
  const ChildProcess other = spawn(request);
  run_ranks(shell(2, "setsid sleep 1000 & exit 0"));
  EXPECT_THAT(children_of_this_process(), ElementsAre(other.pid));
  EXPECT_FALSE(poll_exit(other.pid).has_value());
  kill_all_children({}, 10s);
}

TEST(RunRanks, NamesWhatTheRanksLeftBehind) {
  EXPECT_THAT(run_ranks(shell(1, "setsid sleep 1000 & exit 0")).left_behind,
              ElementsAre(HasSubstr(" (pid ")));
}

TEST(RunRanks, TellsHowTheAttemptEnded) {
  const auto end_of = [](const char* script) { return run_ranks(shell(2, script)).end; };
  EXPECT_EQ(end_of("exit 0"), AttemptEnd::SUCCEEDED);
  EXPECT_EQ(end_of("exit 75"), AttemptEnd::REQUEUE);
  EXPECT_EQ(end_of("[ $RANK = 1 ] && exit 75; exit 0"), AttemptEnd::REQUEUE);
  EXPECT_EQ(end_of("[ $RANK = 1 ] && exit 75; exit 3"), AttemptEnd::RANK_FAILED);
  EXPECT_EQ(end_of("kill -KILL $$"), AttemptEnd::RANK_FAILED);
}

TEST(RunRanks, ARankThatAsksForARequeueIsNoFailure) {
  const RunResult result = run_ranks(shell(2, "exit 75"));
  EXPECT_EQ(result.exit_code, EXIT_REQUEUE);
  EXPECT_EQ(result.first_failure, std::nullopt);
}

TEST(RunRanks, RefusesAProgramThatCannotRun) {
  const TempFolder folder;
  const auto code_of = [](const std::string& program) {
    LaunchSpec spec = shell(2, "");
    spec.command = {program};
    try {
      run_ranks(spec);
    } catch (const ProgramError& error) {
      return error.exit_code();
    }
    return 0;
  };
  EXPECT_EQ(code_of("/no/such/program"), EXIT_NOT_FOUND);
  EXPECT_EQ(code_of(folder.write("plain", "x")), EXIT_NOT_EXECUTABLE);
  const std::string script = folder.write("script", "no first line\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_EQ(code_of(script), EXIT_NOT_EXECUTABLE) << "found out only by running it";
}

TEST(RunRanks, GivesEveryRankTheSpecsVariables) {
  LaunchSpec spec = shell(2, "echo $MINE $OMP_NUM_THREADS");
  spec.environment = {{"MINE", "a"}, {"OMP_NUM_THREADS", "5"}};
  for (const auto& rank : run_ranks(spec).ranks) EXPECT_EQ(rank.output, "a 5\n");
}

TEST(RunRanks, KeepsAFilePerRank) {
  const TempFolder folder;
  LaunchSpec spec = shell(2, "echo rank $RANK; cat $LOCKSTEP_LOG_DIR/rank$RANK.log");
  spec.log_base = folder / "runs";
  run_ranks(spec);
  const auto run = *std::filesystem::directory_iterator(folder / "runs");
  std::ifstream log(run.path() / "rank1.log");
  std::string line;
  EXPECT_TRUE(std::getline(log, line));
  EXPECT_EQ(line, "rank 1");
}

TEST(RunRanks, StartsAHundredRanks) {
  const RunResult result = run_ranks(shell(100, "exit 0"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.ranks, SizeIs(100));
}

}  // namespace
}  // namespace lockstep
