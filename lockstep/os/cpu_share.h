// CpuShare: the part of a machine that a process may use: which CPUs, and how much of their time. Ranks
// exchange it as text.
//
//   const CpuShare mine = cpu_share();                        // CPUs {0, 1}, 1.5 CPUs' worth of time
//   usable_cpus({mine});                                      // 1
//   usable_cpus({{.cpus = {0}}, {.cpus = {1}}});  // 2: two ranks, each bound to a core of its own
//
// Threads that spin while they wait may take CPU time from each other. Whether they do depends on the CPUs
// that the ranks have together. A launcher that binds each rank to a core gives each rank one CPU, and no
// rank disturbs another. Two ranks under `taskset -c 0` have one CPU each as well, but it is the same one.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct CpuShare {
  std::set<int> cpus;                // the affinity mask of the calling thread; never empty
  std::optional<double> quota = {};  // CPUs' worth of time that the cgroup grants; nullopt: no limit
};

// The share of this process, now. Reads some small files, so call it when a group is made, not in hot paths.
CpuShare cpu_share();

// How many CPUs these processes have together: all CPUs in any mask, but at most the whole part of the
// smallest quota, which all of them are assumed to share. At least 1.
int usable_cpus(const std::vector<CpuShare>& shares);

// The share as one word, and back: "b/1.5" means CPUs 0, 1 and 3 and a quota of 1.5. Each hexadecimal digit
// stands for four CPUs, the lowest first, so that a large machine's share still fits into a message. nullopt
// if the text is malformed.
std::string text_of(const CpuShare& share);
std::optional<CpuShare> parse_cpu_share(std::string_view text);

}  // namespace lockstep
