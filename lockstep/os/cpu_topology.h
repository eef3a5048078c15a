// The CPUs this process may use: affinity mask (taskset, Slurm, a container's cpuset), physical cores, and
// CPU-time quota.
//
//   const CpuTopology machine = cpu_topology();
//   machine.cores          // {{0, 4}, {1, 5}}: two physical cores with two hardware threads each, neighbours
//                          // side by side
//   machine.usable_cores() // 1 under a quota of 1.5 CPUs
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

struct CpuTopology {
  std::vector<std::vector<int>> cores;  // CPU numbers of each physical core that may be used; never empty
  std::optional<double> quota;          // CPUs' worth of time that the cgroup grants; nullopt: no limit

  int usable_cores() const {
    const int count = static_cast<int>(cores.size());
    return quota ? std::clamp(static_cast<int>(*quota), 1, count) : count;
  }
};

CpuTopology cpu_topology();

// The topology that hwloc derives from a description such as "pack:2 numa:1 core:4 pu:2". For tests.
CpuTopology synthetic_topology(const std::string& description);

// The CPUs on which the calling thread may run.
std::set<int> affinity_mask();

// The smallest CPU quota of this process's cgroup and the cgroups above it (cpu.max in version 2,
// cpu.cfs_quota_us in version 1). Tests pass another `root` in place of "/".
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

}  // namespace lockstep
