#include "lockstep/launch/core_plan.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Cpus = std::vector<int>;

// `cores` cores with `threads` hardware threads, numbered like Linux: the first threads of all cores, then
// the second.
CpuTopology machine(int cores, int threads = 1) {
  CpuTopology topology;
  for (int core = 0; core < cores; ++core) {
    std::vector<int> cpus;
    for (int thread = 0; thread < threads; ++thread) cpus.push_back(thread * cores + core);
    topology.cores.push_back(cpus);
  }
  return topology;
}

TEST(CorePlan, GivesEveryRankWholeCores) {
  const CorePlan plan = core_plan(machine(4, 2), {.ranks = 2});
  EXPECT_THAT(plan.cpus, ElementsAre(Cpus{0, 1, 4, 5}, Cpus{2, 3, 6, 7}));
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.summary, "2 ranks on 4 cores: 2 cores each, OMP_NUM_THREADS=2");
}

TEST(CorePlan, GivesEveryRankTheSameNumberOfThreadsWhenCoresDoNotDivide) {
  const CorePlan plan = core_plan(machine(5), {.ranks = 2});
  EXPECT_THAT(plan.cpus, ElementsAre(Cpus{0, 1}, Cpus{2, 3, 4}));
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.summary, "2 ranks on 5 cores: 2 or 3 cores each, OMP_NUM_THREADS=2");
}

TEST(CorePlan, GivesOneRankEverything) {
  const CorePlan plan = core_plan(machine(2), {.ranks = 1});
  EXPECT_THAT(plan.cpus, ElementsAre(Cpus{0, 1}));
  EXPECT_EQ(plan.summary, "1 rank on 2 cores: 2 cores, OMP_NUM_THREADS=2");
}

TEST(CorePlan, PinsNobodyWithMoreRanksThanCores) {
  const CorePlan plan = core_plan(machine(2), {.ranks = 3});
  EXPECT_THAT(plan.cpus, ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_EQ(plan.threads, 1);
  EXPECT_EQ(plan.summary, "3 ranks on 2 cores: more ranks than cores, so none is pinned, OMP_NUM_THREADS=1");
}

TEST(CorePlan, PinsNobodyUnderAQuotaButCountsIt) {
  CpuTopology topology = machine(64);
  topology.quota = 4.5;
  const CorePlan plan = core_plan(topology, {.ranks = 2});
  EXPECT_THAT(plan.cpus, ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.summary, "2 ranks on 4 cores: not pinned under a quota of 4.5 CPUs, OMP_NUM_THREADS=2");
}

TEST(CorePlan, IgnoresAQuotaThatGrantsEverything) {
  CpuTopology topology = machine(2);
  topology.quota = 2.0;
  EXPECT_THAT(core_plan(topology, {.ranks = 2}).cpus, ElementsAre(Cpus{0}, Cpus{1}));
}

TEST(CorePlan, KeepsTheUsersThreadsAndPinsOnlyWhereTheyFit) {
  const CpuTopology topology = machine(8);
  EXPECT_THAT(core_plan(topology, {.ranks = 2, .user_threads = "3"}).cpus,
              ElementsAre(Cpus{0, 1, 2, 3}, Cpus{4, 5, 6, 7}));
  const CorePlan wide = core_plan(topology, {.ranks = 2, .user_threads = "8,2"});
  EXPECT_THAT(wide.cpus, ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_EQ(wide.summary,
            "2 ranks on 8 cores: not pinned to fewer cores than threads, OMP_NUM_THREADS=8,2 (as set)");
}

TEST(CorePlan, PinsNobodyWhenAskedNotTo) {
  EXPECT_THAT(core_plan(machine(4), {.ranks = 2, .pin = false}).cpus, ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(CorePlan, UsesOnlyTheCpusOfAnExistingMask) {
  CpuTopology masked;
  masked.cores = {{2}, {3, 11}, {6}, {7}};
  EXPECT_THAT(core_plan(masked, {.ranks = 2}).cpus, ElementsAre(Cpus{2, 3, 11}, Cpus{6, 7}));
}

RC_GTEST_PROP(CorePlan, SplitsEveryMachineWithoutGapsOrOverlaps, ()) {
  const int cores = *rc::gen::inRange(1, 200);
  const int threads = *rc::gen::inRange(1, 5);
  const int ranks = *rc::gen::inRange(1, cores + 1);
  const CorePlan plan = core_plan(machine(cores, threads), {.ranks = ranks});
  std::multiset<int> all;
  for (const auto& cpus : plan.cpus) {
    all.insert(cpus.begin(), cpus.end());
    const auto own = static_cast<int>(cpus.size()) / threads;
    RC_ASSERT(own == cores / ranks || own == cores / ranks + 1);
  }
  std::vector<int> expected(static_cast<std::size_t>(cores * threads));
  std::iota(expected.begin(), expected.end(), 0);
  RC_ASSERT(std::vector<int>(all.begin(), all.end()) == expected);
  RC_ASSERT(plan.threads == cores / ranks);
}

TEST(CpuList, JoinsNeighbours) {
  EXPECT_EQ(cpu_list({0, 1, 2, 5}), "0-2,5");
  EXPECT_EQ(cpu_list({3}), "3");
  EXPECT_EQ(cpu_list({}), "");
  EXPECT_EQ(cpu_list({0, 2, 4, 5}), "0,2,4-5");
}

}  // namespace
}  // namespace lockstep
