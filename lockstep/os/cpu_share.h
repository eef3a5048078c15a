// What this process may use of its machine, as something that ranks tell each other: which CPUs, and how much
// time of them.
//
//   const CpuShare mine = cpu_share();                        // CPUs {0, 1}, 1.5 CPUs' worth of time
//   usable_cpus({mine});                                      // 1
//   usable_cpus({{.cpus = {0}}, {.cpus = {1}}});  // 2: two ranks, each bound to a core of its own
//
// Whether threads that spin while they wait are in each other's way depends on the CPUs they have together: a
// launcher that binds each rank to a core leaves each of them one, and nobody is in the way; two ranks under
// `taskset -c 0` have one as well.
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

// Of this process, now. Reads some small files: for when a group is made, not for hot paths.
CpuShare cpu_share();

// How many CPUs these processes have together: those in any mask, but no more than whole CPUs fit into the
// smallest quota (a quota is taken for one that all of them share). At least 1.
int usable_cpus(const std::vector<CpuShare>& shares);

// One word each way, "b/1.5" for CPUs 0, 1 and 3 and a quota: a hexadecimal digit for four CPUs, the lowest
// first, so that any machine's fits into a message between ranks. nullopt: the text is not one.
std::string text_of(const CpuShare& share);
std::optional<CpuShare> parse_cpu_share(std::string_view text);

}  // namespace lockstep
