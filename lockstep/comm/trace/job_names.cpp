#include "lockstep/comm/trace/job_names.h"

#include <map>
#include <set>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep::trace {

std::vector<std::string> distinct_job_names(const std::vector<JobClaim>& claims) {
  std::map<std::pair<std::string, int>, std::set<long>> pids;  // by name and rank
  std::set<std::string> shared;                                // names that two jobs have
  for (const JobClaim& claim : claims) {
    if (claim.job.empty() || !claim.is_alive) continue;
    std::set<long>& same = pids[{claim.job, claim.rank}];
    same.insert(claim.pid);
    if (same.size() > 1) shared.insert(claim.job);
  }
  std::vector<std::string> names;
  for (const JobClaim& claim : claims) {
    const bool is_told_apart = shared.contains(claim.job) && !claim.network.empty();
    names.push_back(is_told_apart ? str(claim.job, " in network namespace ", claim.network) : claim.job);
  }
  return names;
}

}  // namespace lockstep::trace
