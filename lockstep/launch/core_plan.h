// Decides which cores and how many threads each rank of a machine gets. Pure: a machine goes in, a table
// comes out.
//
//   const CorePlan plan = core_plan(cpu_topology(), {.ranks = 4});
//   plan.cpus[2]       // {4, 5}: rank 2 may run there; empty: anywhere the launcher may
//   plan.threads       // 2: OMP_NUM_THREADS, the same for every rank, because sums depend on the number of
//                      // threads
//
// Neighbouring ranks get neighbouring whole cores, so that a rank stays within one package and cache where
// it can. No rank is pinned in four cases: there are more ranks than cores; a quota grants less time than
// there are cores, which other programs then use too; the user's own OMP_NUM_THREADS is more than a rank's
// share; or the user asks for none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/os/cpu_topology.h"

namespace lockstep {

struct CorePlanOptions {
  int ranks = 1;
  bool pin = true;
  std::optional<std::string> user_threads;  // OMP_NUM_THREADS as the user set it: kept, whatever it says
};

struct CorePlan {
  std::vector<std::vector<int>> cpus;  // one per rank
  int threads = 1;                     // per rank; meaningless when the user set it
  std::string summary;                 // "2 ranks on 4 cores: 2 cores each, OMP_NUM_THREADS=2"
};

CorePlan core_plan(const CpuTopology& machine, const CorePlanOptions& options);

// {0, 1, 2, 5} -> "0-2,5"
std::string cpu_list(const std::vector<int>& cpus);

}  // namespace lockstep
