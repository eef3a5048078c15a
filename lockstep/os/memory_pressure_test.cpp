#include "lockstep/os/memory_pressure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;  // path and content

bool is_scarce_with(const Files& files) {
  const testing::TempFolder root;
  for (const auto& [path, content] : files) {
    std::filesystem::create_directories(std::filesystem::path(root / path).parent_path());
    root.write(path, content);
  }
  return memory_is_scarce(root.path());
}

std::string meminfo(int available_kb) {
  return "MemTotal:       16000 kB\nMemFree:  1 kB\nMemAvailable:   " + std::to_string(available_kb) +
         " kB\n";
}

TEST(MemoryPressure, LooksAtWhatTheMachineHasLeft) {
  EXPECT_FALSE(is_scarce_with({{"proc/meminfo", meminfo(1000)}}));
  EXPECT_TRUE(is_scarce_with({{"proc/meminfo", meminfo(999)}}));
}

TEST(MemoryPressure, TakesWhatCannotBeReadAsPlenty) {
  EXPECT_FALSE(is_scarce_with({}));
  EXPECT_FALSE(is_scarce_with({{"proc/meminfo", "MemTotal: 16000 kB\n"}}));
  EXPECT_FALSE(is_scarce_with({{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/memory.max", "1600\n"}}));
}

TEST(MemoryPressure, LooksAtTheCgroupAndThoseAboveIt) {
  const auto of = [](const std::string& limit, const std::string& current) {
    return is_scarce_with({{"proc/meminfo", meminfo(16000)},
                           {"proc/self/cgroup", "0::/a/b\n"},
                           {"sys/fs/cgroup/a/memory.max", limit},
                           {"sys/fs/cgroup/a/memory.current", current},
                           {"sys/fs/cgroup/a/b/memory.max", "max\n"},
                           {"sys/fs/cgroup/a/b/memory.current", current}});
  };
  EXPECT_FALSE(of("1600\n", "1500\n"));
  EXPECT_TRUE(of("1600\n", "1501\n"));
  EXPECT_TRUE(of("1600\n", "1700\n"));
  EXPECT_FALSE(of("max\n", "1700\n"));
}

TEST(MemoryPressure, KnowsTheLimitThatOnlySlowsDown) {
  EXPECT_TRUE(is_scarce_with({{"proc/self/cgroup", "0::/a\n"},
                              {"sys/fs/cgroup/a/memory.max", "max\n"},
                              {"sys/fs/cgroup/a/memory.high", "1600\n"},
                              {"sys/fs/cgroup/a/memory.current", "1600\n"}}));
}

TEST(MemoryPressure, TakesFilePagesNotUsedLatelyAsFree) {
  const auto with = [](const std::string& inactive) {
    return is_scarce_with({{"proc/self/cgroup", "0::/a\n"},
                           {"sys/fs/cgroup/a/memory.max", "1600\n"},
                           {"sys/fs/cgroup/a/memory.current", "1600\n"},
                           {"sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file " + inactive + "\n"}});
  };
  EXPECT_FALSE(with("100"));
  EXPECT_TRUE(with("99"));
}

TEST(MemoryPressure, FindsTheLimitOfAContainerWhosePathLiesOutside) {
  EXPECT_TRUE(is_scarce_with({{"proc/self/cgroup", "0::/kubepods/pod1\n"},
                              {"sys/fs/cgroup/memory.max", "1600\n"},
                              {"sys/fs/cgroup/memory.current", "1600\n"}}));
}

}  // namespace
}  // namespace lockstep
