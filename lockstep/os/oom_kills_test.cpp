#include "lockstep/os/oom_kills.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "testing/temp_folder.h"

namespace lockstep {
namespace {

class OomKillsTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root() const { return folder_.path(); }

  testing::TempFolder folder_;
};

TEST_F(OomKillsTest, OfAControlGroupOfVersion2) {
  write("/proc/self/cgroup", "0::/jobs/7\n");
  write("/sys/fs/cgroup/jobs/7/memory.events",
        "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n");
  const OomKills before = oom_kills(root());
  EXPECT_EQ(before.in_cgroup, 1U);
  EXPECT_EQ(who_killed(before, oom_kills(root())), "");
  write("/sys/fs/cgroup/jobs/7/memory.events",
        "low 0\nhigh 0\nmax 32\noom 3\noom_kill 2\noom_group_kill 0\n");
  EXPECT_EQ(
      who_killed(before, oom_kills(root())),
      " by the kernel's out-of-memory killer, which has ended 1 process of control group /jobs/7 since the "
      "job began");
}

TEST_F(OomKillsTest, OfAControlGroupOfVersion1WhosePathLiesAboveTheMount) {
  write("/proc/self/cgroup", "9:cpu,cpuacct:/a\n4:memory:/docker/1f\n0::/\n");
  write("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  OomKills before = oom_kills(root());
  EXPECT_EQ(before.in_cgroup, 3U);
  EXPECT_EQ(before.cgroup, "/docker/1f");
  before.in_cgroup = 1;
  EXPECT_NE(who_killed(before, oom_kills(root())).find("2 processes of control group /docker/1f"),
            std::string::npos);
}

TEST_F(OomKillsTest, OfTheMachineProveNothingAboutOneProcess) {
  write("/proc/vmstat", "pgfault 12\noom_kill 7\n");
  OomKills before = oom_kills(root());
  EXPECT_EQ(before.in_cgroup, std::nullopt);
  EXPECT_EQ(before.on_machine, 7U);
  before.on_machine = 6;
  EXPECT_EQ(who_killed(before, oom_kills(root())),
            " (the kernel's out-of-memory killer has ended 1 process of this machine since the job began)");
}

TEST_F(OomKillsTest, AreUnknownWhereNothingCanBeRead) {
  EXPECT_EQ(oom_kills(root()).on_machine, std::nullopt);
  EXPECT_EQ(who_killed(oom_kills(root()), oom_kills(root())), "");
}

}  // namespace
}  // namespace lockstep
