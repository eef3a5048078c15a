#include "lockstep/launch/core_plan.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

std::string counted(int count, std::string_view thing) {
  return str(count, " ", thing, count == 1 ? "" : "s");
}

// OMP_NUM_THREADS may be a list ("4,2", one entry per nesting level). The first entry counts.
int leading_number(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Empty if the ranks are pinned.
std::string reason_not_to_pin(const CpuTopology& machine, const CorePlanOptions& options, int share) {
  const int cores = static_cast<int>(machine.cores.size());
  if (!options.pin) return "not pinned, as asked";
  if (options.ranks > cores) return "more ranks than cores, so none is pinned";
  if (machine.usable_cores() < cores) return str("not pinned under a quota of ", *machine.quota, " CPUs");
  if (options.user_threads && leading_number(*options.user_threads) > share)
    return "not pinned to fewer cores than threads";
  return "";
}

std::vector<int> cpus_of(const CpuTopology& machine, const CorePlanOptions& options, int rank) {
  const auto cores = machine.cores.size();
  const auto ranks = static_cast<std::size_t>(options.ranks);
  const auto r = static_cast<std::size_t>(rank);
  std::vector<int> cpus;
  for (std::size_t core = r * cores / ranks; core < (r + 1) * cores / ranks; ++core) {
    cpus.insert(cpus.end(), machine.cores[core].begin(), machine.cores[core].end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

}  // namespace

CorePlan core_plan(const CpuTopology& machine, const CorePlanOptions& options) {
  const int cores = machine.usable_cores();
  const int share = std::max(1, cores / options.ranks);
  const std::string reason = reason_not_to_pin(machine, options, share);
  CorePlan plan;
  plan.threads = share;
  plan.cpus.resize(static_cast<std::size_t>(options.ranks));
  if (reason.empty()) {
    for (int rank = 0; rank < options.ranks; ++rank)
      plan.cpus[static_cast<std::size_t>(rank)] = cpus_of(machine, options, rank);
  }
  const bool even = static_cast<int>(machine.cores.size()) % options.ranks == 0;
  const std::string each = even ? counted(share, "core") : str(share, " or ", counted(share + 1, "core"));
  plan.summary =
      str(counted(options.ranks, "rank"), " on ", counted(cores, "core"), ": ",
          reason.empty() ? each + (options.ranks == 1 ? "" : " each") : reason, ", OMP_NUM_THREADS=",
          options.user_threads ? printable(*options.user_threads) + " (as set)" : str(plan.threads));
  return plan;
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == first ? str(cpus[first]) : str(cpus[first], "-", cpus[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace lockstep
