// core_plan: decides which cores and how many threads each rank of a machine gets. Pure.
//
//   const CorePlan plan = core_plan(cpu_topology(), {.ranks = 4});
//   plan.cpus[2]       // {4, 5}: the CPUs of rank 2; empty if it is not pinned
//   plan.threads       // 2: OMP_NUM_THREADS. All ranks get the same number, because sums depend on it.
//
// Neighbouring ranks get neighbouring whole cores, so that a rank stays within one package and cache if
// possible. No rank is pinned in four cases: there are more ranks than cores; a quota grants less time than
// there are cores (then other programs use them too); the user's own OMP_NUM_THREADS exceeds a rank's share;
// or the user asks for no pinning.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/os/cpu_topology.h"

namespace lockstep {

struct CorePlanOptions {
  int ranks = 1;
  bool pin = true;
  std::optional<std::string> user_threads;  // the user's OMP_NUM_THREADS, which is kept whatever its value
};

struct CorePlan {
  std::vector<std::vector<int>> cpus;  // one per rank
  int threads = 1;                     // per rank; without meaning if the user set it
  std::string summary;                 // "2 ranks on 4 cores: 2 cores each, OMP_NUM_THREADS=2"
};

CorePlan core_plan(const CpuTopology& machine, const CorePlanOptions& options);

// {0, 1, 2, 5} -> "0-2,5"
std::string cpu_list(const std::vector<int>& cpus);

}  // namespace lockstep
