#include "lockstep/os/cpu_topology.h"

#include <gmock/gmock.h>
#include <sched.h>

#include <filesystem>

#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::Optional;
using testing::TempFolder;

using Cpus = std::vector<int>;

// A file tree that stands for "/": path and content.
struct Root {
  explicit Root(const std::vector<std::pair<std::string, std::string>>& files) {
    for (const auto& [path, content] : files) {
      std::filesystem::create_directories(std::filesystem::path(folder / path).parent_path());
      folder.write(path, content);
    }
  }
  std::optional<double> quota() const { return cgroup_cpu_quota(folder.path()); }
  TempFolder folder;
};

TEST(CgroupQuota, IsNoneWithoutALimit) {
  EXPECT_EQ(Root({}).quota(), std::nullopt);
  EXPECT_EQ(Root({{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "max 100000\n"}}).quota(),
            std::nullopt);
  EXPECT_EQ(Root({{"proc/self/cgroup", "3:cpu:/\n"},
                  {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                  {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}})
                .quota(),
            std::nullopt);
}

TEST(CgroupQuota, IsTheTightestOfTheGroupAndThoseAboveIt) {
  EXPECT_THAT(Root({{"proc/self/cgroup", "0::/a/b\n"},
                    {"sys/fs/cgroup/a/cpu.max", "150000 100000\n"},
                    {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}})
                  .quota(),
              Optional(1.5));
}

TEST(CgroupQuota, IsReadFromVersionOneToo) {
  EXPECT_THAT(Root({{"proc/self/cgroup", "7:memory:/m\n4:cpu,cpuacct:/a\n0::/\n"},
                    {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n"},
                    {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}})
                  .quota(),
              Optional(2.5));
}

TEST(CgroupQuota, IsFoundInAContainerWhosePathLiesOutside) {
  EXPECT_THAT(
      Root({{"proc/self/cgroup", "0::/kubepods/pod1\n"}, {"sys/fs/cgroup/cpu.max", "400000 100000\n"}})
          .quota(),
      Optional(4.0));
  EXPECT_THAT(
      Root({{"proc/self/cgroup", "0::/../x\n"}, {"sys/fs/cgroup/cpu.max", "400000 100000\n"}}).quota(),
      Optional(4.0));
}

TEST(CpuTopology, CountsWholeCoresOfAQuota) {
  CpuTopology machine{{{0}, {1}, {2}, {3}}, std::nullopt};
  EXPECT_EQ(machine.usable_cores(), 4);
  for (const auto& [quota, cores] : {std::pair{0.5, 1}, {1.0, 1}, {2.9, 2}, {100.0, 4}}) {
    machine.quota = quota;
    EXPECT_EQ(machine.usable_cores(), cores) << quota;
  }
}

TEST(CpuTopology, HoldsExactlyTheCpusOfTheAffinityMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  Cpus expected;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) expected.push_back(cpu);
  }
  Cpus found;
  for (const auto& core : cpu_topology().cores) found.insert(found.end(), core.begin(), core.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, expected);
}

TEST(CpuTopology, KeepsHardwareThreadsOfACoreTogether) {
  EXPECT_THAT(synthetic_topology("pack:2 core:2 pu:2").cores,
              ElementsAre(Cpus{0, 1}, Cpus{2, 3}, Cpus{4, 5}, Cpus{6, 7}));
  EXPECT_THAT(synthetic_topology("pack:2 l3:1 core:8 pu:2").cores.size(), Eq(16U));
}

}  // namespace
}  // namespace lockstep
