#include "lockstep/os/cpu_topology.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#ifdef LOCKSTEP_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

#ifdef LOCKSTEP_HAVE_HWLOC
class Hwloc {
 public:
  explicit Hwloc(const char* synthetic) {
    if (hwloc_topology_init(&topology_) != 0) throw SystemError("hwloc cannot be initialised", errno);
    hwloc_topology_set_all_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology_, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (synthetic != nullptr && hwloc_topology_set_synthetic(topology_, synthetic) != 0) {
      hwloc_topology_destroy(topology_);
      throw InvalidArgument(str("hwloc does not understand the topology \"", printable(synthetic), "\""));
    }
    if (hwloc_topology_load(topology_) != 0) {
      hwloc_topology_destroy(topology_);
      throw SystemError("hwloc cannot read the machine's topology", errno);
    }
  }
  Hwloc(const Hwloc&) = delete;
  Hwloc& operator=(const Hwloc&) = delete;
  ~Hwloc() { hwloc_topology_destroy(topology_); }

  bool is_this_machine() const { return hwloc_topology_is_thissystem(topology_) != 0; }

  std::vector<std::vector<int>> cores() const {
    std::vector<std::vector<int>> found;
    for (hwloc_obj_t core = nullptr;
         (core = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_CORE, core)) != nullptr;) {
      std::vector<int> cpus;
      for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
        cpus.push_back(cpu);
      }
      found.push_back(std::move(cpus));
    }
    return found;
  }

 private:
  hwloc_topology_t topology_{};
};
#endif

// Keeps the usable CPUs of each core. A CPU that hwloc assigns to no core (some virtual machines; a build
// without hwloc) becomes a core of its own.
std::vector<std::vector<int>> restricted(const std::vector<std::vector<int>>& cores,
                                         const std::set<int>& usable) {
  std::vector<std::vector<int>> out;
  std::set<int> seen;
  for (const auto& core : cores) {
    std::vector<int> cpus;
    for (const int cpu : core) {
      if (usable.count(cpu) > 0 && seen.insert(cpu).second) cpus.push_back(cpu);
    }
    if (!cpus.empty()) out.push_back(std::move(cpus));
  }
  for (const int cpu : usable) {
    if (seen.insert(cpu).second) out.push_back({cpu});
  }
  return out;
}

// An empty value means no limit.
std::optional<double> lowest(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<double> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  double value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

std::optional<double> quota_of(const std::filesystem::path& group) {
  std::ifstream in(group / "cpu.max");
  std::string quota;
  double period = 0;
  if (in >> quota >> period && quota != "max" && period > 0) return std::stod(quota) / period;
  const auto old_quota = number_in(group / "cpu.cfs_quota_us");
  const auto old_period = number_in(group / "cpu.cfs_period_us");
  if (old_quota && old_period && *old_quota > 0 && *old_period > 0) return *old_quota / *old_period;
  return std::nullopt;
}

// In a container, the path in /proc/self/cgroup may contain folders above the mount. Those folders are
// missing here and are skipped.
std::optional<double> tightest_quota(const std::filesystem::path& mount, const std::string& group) {
  std::optional<double> quota = quota_of(mount);
  std::filesystem::path path = mount;
  for (const auto& part : std::filesystem::path(group).relative_path()) {
    if (part == "..") return quota;
    path /= part;
    quota = lowest(quota, quota_of(path));
  }
  return quota;
}

// nullopt: a container's filter forbids the system call.
std::optional<std::set<int>> kernel_affinity_mask() {
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(cpus),
                                                                [](cpu_set_t* set) { CPU_FREE(set); });
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, size, mask.get()) != 0) {
      if (errno == EINVAL) continue;  // the kernel has more CPUs than the mask
      break;
    }
    std::set<int> usable;
    for (int cpu = 0; cpu < cpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, mask.get())) usable.insert(cpu);
    }
    return usable;
  }
  return std::nullopt;
}

}  // namespace

std::set<int> affinity_mask() {
  if (auto mask = kernel_affinity_mask()) return *mask;
  std::set<int> all = {0};
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  for (int cpu = 1; cpu < online; ++cpu) all.insert(cpu);
  return all;
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> quota;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/path" or, version 2, "0::/path"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const std::string mounts = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      quota = lowest(quota, tightest_quota(mounts, path));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      quota = lowest(quota, tightest_quota(std::filesystem::path(mounts) / controllers, path));
    }
  }
  return quota;
}

CpuTopology cpu_topology() {
  CpuTopology machine;
#ifdef LOCKSTEP_HAVE_HWLOC
  if (kernel_affinity_mask()) {
    const Hwloc hwloc(nullptr);
    machine.cores = hwloc.is_this_machine() ? restricted(hwloc.cores(), affinity_mask()) : hwloc.cores();
  } else {  // hwloc would repeat the forbidden call with ever larger masks
    machine.cores = restricted({}, affinity_mask());
  }
#else
  machine.cores = restricted({}, affinity_mask());
#endif
  machine.quota = cgroup_cpu_quota();
  return machine;
}

CpuTopology synthetic_topology(const std::string& description) {
#ifdef LOCKSTEP_HAVE_HWLOC
  return {Hwloc(description.c_str()).cores(), std::nullopt};
#else
  throw InvalidArgument(
      str("this build has no hwloc, which topology \"", printable(description), "\" needs"));
#endif
}

}  // namespace lockstep
