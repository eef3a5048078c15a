#include "lockstep/launch/launch_plan.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

JobFacts facts(std::vector<std::string> environment = {}) {
  return {"0123456789abcdef", 4711, "/logs", 0, std::move(environment), {{{0}, {1}, {2}, {3}}, std::nullopt}};
}

LaunchSpec two_ranks() {
  LaunchSpec spec;
  spec.command = {"./train", "--flag"};
  spec.ranks = 2;
  return spec;
}

TEST(LaunchPlan, SetsTheContractsVariables) {
  const LaunchPlan plan = launch_plan(two_ranks(), facts());
  EXPECT_THAT(plan.variables[1],
              ElementsAre("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
                          "GROUP_WORLD_SIZE=1", "ROLE_RANK=1", "ROLE_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                          "MASTER_PORT=4711", "LOCKSTEP_JOB_ID=0123456789abcdef", "LOCKSTEP_RESTART_COUNT=0",
                          "TORCHELASTIC_RESTART_COUNT=0", "OMP_NUM_THREADS=2", "LOCKSTEP_LOG_DIR=/logs"));
  EXPECT_THAT(plan.command, ElementsAre("./train", "--flag"));
}

TEST(LaunchPlan, TellsARestartedRankHowOften) {
  JobFacts restarted = facts({"LOCKSTEP_RESTART_COUNT=9", "TORCHELASTIC_RESTART_COUNT=9"});
  restarted.restarts = 2;
  const std::vector<std::string> all = rank_environment(launch_plan(two_ranks(), restarted), 1, {});
  EXPECT_THAT(all, AllOf(Contains("LOCKSTEP_RESTART_COUNT=2"), Contains("TORCHELASTIC_RESTART_COUNT=2")));
  EXPECT_THAT(all, Not(Contains(HasSubstr("_COUNT=9")))) << "of another launcher around this one";
}

TEST(LaunchPlan, OfASecondMachineCountsOnAndInheritsNoSockets) {
  LaunchSpec spec = two_ranks();
  spec.place = {.nodes = 2,
                .node = 1,
                .first_rank = 3,
                .world_size = 5,
                .master_addr = "10.0.0.1",
                .master_port = 29500};
  const LaunchPlan plan = launch_plan(spec, facts());
  for (const char* variable :
       {"RANK=4", "WORLD_SIZE=5", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2",
        "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500", "LOCKSTEP_STORE=launcher"}) {
    EXPECT_THAT(plan.variables[1], Contains(variable));
  }
  EXPECT_FALSE(plan.has_hub);
}

TEST(LaunchPlan, TheLocalRankIsTheFirstArgumentIfAskedFor) {
  LaunchSpec spec = two_ranks();
  EXPECT_THAT(rank_command(launch_plan(spec, facts()), 1), ElementsAre("./train", "--flag"));
  spec.pass_local_rank = true;
  EXPECT_THAT(rank_command(launch_plan(spec, facts()), 1),
              ElementsAre("./train", "--local_rank=1", "--flag"));
}

TEST(LaunchPlan, ListsTheInheritedSockets) {
  const LaunchPlan plan = launch_plan(two_ranks(), facts());
  EXPECT_THAT(rank_environment(plan, 0, {11, 12}), Contains("LOCKSTEP_HUB_FDS=11,12"));
  EXPECT_THAT(rank_environment(plan, 1, {}), Not(Contains(StartsWith("LOCKSTEP_HUB_FDS"))));
}

TEST(LaunchPlan, TellsRankZeroAloneTheTerminalsWidth) {
  JobFacts on_terminal = facts();
  on_terminal.terminal_columns = 75;
  const LaunchPlan plan = launch_plan(two_ranks(), on_terminal);
  EXPECT_THAT(plan.variables[0], Contains("LOCKSTEP_TERMINAL=75"));
  EXPECT_THAT(plan.variables[1], Not(Contains(StartsWith("LOCKSTEP_TERMINAL"))));
}

TEST(LaunchPlan, DropsThePlaceInASurroundingJobAndKeepsTheRest) {
  const LaunchPlan plan = launch_plan(two_ranks(), facts({"HOME=/root", "RANK=7", "LOCKSTEP_HUB_FDS=5",
                                                          "LOCKSTEP_TERMINAL=9", "LOCKSTEP_TIMEOUT=3"}));
  EXPECT_THAT(plan.inherited, ElementsAre("HOME=/root", "LOCKSTEP_TIMEOUT=3"));
}

TEST(LaunchPlan, KeepsTheUsersNumberOfThreads) {
  const LaunchPlan plan = launch_plan(two_ranks(), facts({"OMP_NUM_THREADS=1"}));
  EXPECT_THAT(plan.inherited, ElementsAre("OMP_NUM_THREADS=1"));
  EXPECT_THAT(plan.variables[0], Not(Contains(StartsWith("OMP_NUM_THREADS"))));
}

TEST(LaunchPlan, LetsTheSpecsOwnVariablesWin) {
  LaunchSpec spec = two_ranks();
  spec.environment = {{"OMP_NUM_THREADS", "2"}, {"MASTER_PORT", "1"}, {"HOME", "/elsewhere"}};
  const LaunchPlan plan = launch_plan(spec, facts({"HOME=/root"}));
  EXPECT_THAT(plan.variables[0], AllOf(Contains("OMP_NUM_THREADS=2"), Contains("MASTER_PORT=1"),
                                       Contains("HOME=/elsewhere"), Not(Contains("MASTER_PORT=4711"))));
  EXPECT_THAT(plan.inherited, ElementsAre());
}

TEST(LaunchPlan, IsPrintedRankByRank) {
  LaunchSpec spec = two_ranks();
  spec.command = {"./train", "two words", "\x1b[2J"};
  EXPECT_THAT(
      describe(launch_plan(spec, facts())),
      AllOf(StartsWith("2 ranks on 4 cores: 2 cores each, OMP_NUM_THREADS=2\nrank 0\n  RANK=0\n"),
            HasSubstr(
                "  LOCKSTEP_HUB_FDS=<1 inherited socket>\n  cpus 2-3\n  ./train 'two words' \\x1b[2J\n")));
}

}  // namespace
}  // namespace lockstep
