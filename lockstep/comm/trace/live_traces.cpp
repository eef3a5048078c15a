// live_traces(): finds trace memory through /proc.
#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/comm/trace/job_names.h"
#include "lockstep/comm/trace/rank_trace.h"
#include "lockstep/comm/trace/trace_layout.h"
#include "lockstep/os/foreign_memory.h"
#include "lockstep/os/process_table.h"

namespace lockstep {
namespace {

struct FoundTraces {
  RankTrace trace;
  std::set<pid_t> holders;  // processes that have the memory open: its owner and the other ranks
};

std::set<pid_t> descendants(pid_t root, const std::vector<ProcessEntry>& processes) {
  std::set<pid_t> found = {root};
  for (std::size_t before = 0; before != found.size();) {
    before = found.size();
    for (const ProcessEntry& entry : processes) {
      if (found.count(entry.parent) != 0) found.insert(entry.pid);
    }
  }
  return found;
}

using Identity = std::tuple<long, int, std::uint32_t>;

void look_at(pid_t pid, std::map<Identity, FoundTraces>& found) {
  for (const Fd& file : open_memory_files(pid, trace::FILE_NAME)) {
    try {
      const ForeignMemory memory(file.get());
      const auto trace = read_trace(memory.bytes());
      if (!trace) continue;
      FoundTraces& entry = found[{trace->pid, trace->rank, trace->world}];
      // Until it has joined, a process may have a second file, which says that it waits.
      const std::int64_t joining_ns = std::max(entry.trace.joining_ns, trace->joining_ns);
      if (entry.trace.groups.empty()) entry.trace = *trace;
      entry.trace.joining_ns = joining_ns;
      entry.holders.insert(pid);
    } catch (const SystemError&) {
      // The file belongs to another program and happens to have the name, or its process is just ending.
    }
  }
}

// Returns the namespace of the rank. If the rank has ended, that of a process that still holds its records.
std::string network_of(const FoundTraces& entry) {
  std::string network = network_namespace(static_cast<pid_t>(entry.trace.pid));
  for (auto holder = entry.holders.begin(); network.empty() && holder != entry.holders.end(); ++holder)
    network = network_namespace(*holder);
  return network;
}

void tell_jobs_apart(std::map<Identity, FoundTraces>& found) {
  std::vector<trace::JobClaim> claims;
  for (const auto& [identity, entry] : found) {
    const RankTrace& rank = entry.trace;
    const bool is_alive = entry.holders.contains(static_cast<pid_t>(rank.pid));
    claims.push_back({rank.job, rank.rank, rank.pid, network_of(entry), is_alive});
  }
  const std::vector<std::string> names = trace::distinct_job_names(claims);
  auto name = names.begin();
  for (auto& [identity, entry] : found) entry.trace.job = *name++;
}

bool any_of(const std::set<pid_t>& pids, const std::set<pid_t>& wanted) {
  return std::any_of(pids.begin(), pids.end(), [&](pid_t pid) { return wanted.count(pid) != 0; });
}

// A process belongs to the wanted job if it shares the job's name or a holder with a wanted process, because
// ranks hold each other's records.
std::vector<RankTrace> of_job(const std::map<Identity, FoundTraces>& found, std::set<pid_t> wanted) {
  std::set<std::string> jobs;
  std::vector<RankTrace> traces;
  std::set<Identity> taken;
  for (std::size_t before = 1; before != taken.size();) {
    before = taken.size();
    for (const auto& [identity, entry] : found) {
      const bool same_job = !entry.trace.job.empty() && jobs.count(entry.trace.job) != 0;
      if (!same_job && !any_of(entry.holders, wanted)) continue;
      if (!taken.insert(identity).second) continue;
      wanted.insert(entry.holders.begin(), entry.holders.end());
      jobs.insert(entry.trace.job);
      traces.push_back(entry.trace);
    }
    if (before == 0 && taken.empty()) break;
  }
  return traces;
}

}  // namespace

std::vector<RankTrace> live_traces(std::optional<long> pid) {
  const std::vector<ProcessEntry> processes = all_processes();
  std::map<Identity, FoundTraces> found;
  for (const ProcessEntry& entry : processes) look_at(entry.pid, found);
  tell_jobs_apart(found);
  std::vector<RankTrace> traces;
  if (pid) {
    traces = of_job(found, descendants(static_cast<pid_t>(*pid), processes));
  } else {
    for (const auto& [identity, entry] : found) traces.push_back(entry.trace);
  }
  std::sort(traces.begin(), traces.end(), [](const RankTrace& a, const RankTrace& b) {
    return std::tie(a.job, a.rank, a.pid, a.world) < std::tie(b.job, b.rank, b.pid, b.world);
  });
  return traces;
}

}  // namespace lockstep
