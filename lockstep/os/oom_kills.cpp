#include "lockstep/os/oom_kills.h"

#include <filesystem>
#include <fstream>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr const char* COUNTER = "oom_kill";

std::optional<std::uint64_t> counter_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  for (std::string word; file >> word;) {
    if (word == COUNTER && file >> number) return number;
  }
  return std::nullopt;
}

// In a container, the path may contain folders above the mount. The nearest folder that exists counts.
std::optional<std::uint64_t> count_of_group(const std::filesystem::path& mount, std::filesystem::path group,
                                            const char* file) {
  for (;; group = group.parent_path()) {
    if (const auto count = counter_in(mount / group / file)) return count;
    if (group.empty()) return std::nullopt;
  }
}

std::optional<std::uint64_t> growth(const std::optional<std::uint64_t>& before,
                                    const std::optional<std::uint64_t>& now) {
  if (!before || !now || *now <= *before) return std::nullopt;
  return *now - *before;
}

}  // namespace

OomKills oom_kills(const std::string& root) {
  OomKills kills;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path" or, version 2, "0::/path"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    const std::filesystem::path group = std::filesystem::path(path).relative_path();
    std::optional<std::uint64_t> count;
    if (controllers == ",,") count = count_of_group(root + "/sys/fs/cgroup", group, "memory.events");
    if (controllers.find(",memory,") != std::string::npos)
      count = count_of_group(root + "/sys/fs/cgroup/memory", group, "memory.oom_control");
    if (!count) continue;
    kills.cgroup = path;
    kills.in_cgroup = count;
  }
  kills.on_machine = counter_in(root + "/proc/vmstat");
  return kills;
}

std::string who_killed(const OomKills& before, const OomKills& now) {
  const auto counted = [](std::uint64_t kills) { return str(kills, kills == 1 ? " process" : " processes"); };
  if (const auto kills = growth(before.in_cgroup, now.in_cgroup))
    return str(" by the kernel's out-of-memory killer, which has ended ", counted(*kills),
               " of control group ", printable(now.cgroup), " since the job began");
  if (const auto kills = growth(before.on_machine, now.on_machine))
    return str(" (the kernel's out-of-memory killer has ended ", counted(*kills),
               " of this machine since the job began)");
  return "";
}

}  // namespace lockstep
