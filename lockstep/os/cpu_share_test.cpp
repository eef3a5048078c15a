#include "lockstep/os/cpu_share.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>

#include "lockstep/os/cpu_topology.h"

namespace lockstep {
namespace {

using ::testing::Optional;

CpuShare on(std::set<int> cpus, std::optional<double> quota = std::nullopt) {
  return {std::move(cpus), quota};
}

TEST(UsableCpus, AreThoseOfAllMasksTogether) {
  EXPECT_EQ(usable_cpus({on({0}), on({1})}), 2) << "each bound to a core of its own";
  EXPECT_EQ(usable_cpus({on({0, 1}), on({0, 1})}), 2) << "not bound";
  EXPECT_EQ(usable_cpus({on({5}), on({5})}), 1) << "both on one";
  EXPECT_EQ(usable_cpus({on({0, 1}), on({1, 2}), on({7})}), 4);
}

TEST(UsableCpus, AreWholeOnesOfTheSmallestQuota) {
  EXPECT_EQ(usable_cpus({on({0}, 1.5), on({1}, 1.5)}), 1);
  EXPECT_EQ(usable_cpus({on({0}, 2.0), on({1}, 2.0)}), 2);
  EXPECT_EQ(usable_cpus({on({0, 1, 2, 3}, 2.9), on({0, 1, 2, 3})}), 2);
  EXPECT_EQ(usable_cpus({on({0, 1}, 64.0)}), 2);
  EXPECT_EQ(usable_cpus({on({0, 1}, 0.2)}), 1);
  EXPECT_EQ(usable_cpus({}), 1);
}

TEST(CpuShareText, SaysTheSameAgain) {
  EXPECT_EQ(text_of(on({0, 1, 3})), "b");
  EXPECT_EQ(text_of(on({6}, 1.5)), "04/1.5");
  for (const CpuShare& share : {on({0}), on({3, 4}, 0.25), on({0, 63, 1023}), on({8191}, 12.0)}) {
    const auto read = parse_cpu_share(text_of(share));
    ASSERT_TRUE(read) << text_of(share);
    EXPECT_EQ(read->cpus, share.cpus);
    EXPECT_EQ(read->quota, share.quota);
  }
  std::set<int> many;
  for (int cpu = 0; cpu < 8192; ++cpu) many.insert(cpu);
  EXPECT_LT(text_of(on(many, 1.0 / 3)).size(), 2100U) << "as much as a message holds";
}

TEST(CpuShareText, IsRefusedIfItIsNone) {
  for (const char* text : {"", "0", "g", "1/", "1/x", "1/1x", "1/0", "1/-1", "1/nan", "/1", "-1", "1 2"})
    EXPECT_FALSE(parse_cpu_share(text)) << text;
}

// A thread has a mask of its own, so the rest of this process keeps its mask.
TEST(CpuShare, FollowsTheAffinityMask) {
  const CpuShare before = cpu_share();
  const int last = *before.cpus.rbegin();
  std::async(std::launch::async, [&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<std::size_t>(last), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    EXPECT_EQ(cpu_share().cpus, std::set{last});
    EXPECT_EQ(usable_cpus({cpu_share()}), 1);
  }).get();
  EXPECT_EQ(cpu_share().cpus, before.cpus);
}

// A cgroup below that of this process, which the process enters and leaves again, if the machine permits it.
class OwnCgroup {
 public:
  OwnCgroup(const std::string& mount, const std::string& controllers) : home_(mount) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const std::size_t at = line.find(":" + controllers + ":");
      if (at != std::string::npos) home_ = mount + line.substr(at + controllers.size() + 2);
    }
    folder_ = home_ + "/lockstep-test-" + std::to_string(getpid());
    std::error_code ignored;
    made_ = std::filesystem::create_directory(folder_, ignored);
  }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;
  ~OwnCgroup() {
    if (!made_) return;
    write(home_ + "/cgroup.procs", std::to_string(getpid()));
    rmdir(folder_.c_str());
  }
  bool limit(const std::string& file, const std::string& text) const {
    return made_ && write(folder_ + "/" + file, text);
  }
  bool enter() const { return made_ && write(folder_ + "/cgroup.procs", std::to_string(getpid())); }

 private:
  static bool write(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    return static_cast<bool>(out << text << std::flush);
  }
  std::string home_, folder_;
  bool made_ = false;
};

TEST(CpuShare, FollowsTheQuotaOfARealCgroup) {
  const OwnCgroup first("/sys/fs/cgroup/cpu", "cpu");
  const OwnCgroup second("/sys/fs/cgroup", "");
  if (first.limit("cpu.cfs_period_us", "100000") && first.limit("cpu.cfs_quota_us", "150000") &&
      first.enter()) {
    EXPECT_THAT(cpu_share().quota, Optional(1.5));
  } else if (second.limit("cpu.max", "150000 100000") && second.enter()) {
    EXPECT_THAT(cpu_share().quota, Optional(1.5));
  } else {
    std::cout << "not tried here: this user or machine may not make cgroups with a CPU limit "
                 "(cpu_topology_test reads texts)\n";
    return;
  }
  EXPECT_EQ(usable_cpus({cpu_share()}), 1);
}

}  // namespace
}  // namespace lockstep
