#include "lockstep/os/memory_pressure.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

namespace lockstep {
namespace {

constexpr std::uint64_t PARTS = 16;

// Returns the number behind `key` in a file of lines "key number". Without a key, the file is the number.
std::optional<std::uint64_t> number_in(const std::string& path, const std::string& key = "") {
  std::ifstream file(path);
  for (std::string word; key.empty() || file >> word;) {
    if (!key.empty() && word != key) continue;
    std::uint64_t number = 0;
    if (file >> number) return number;
    return std::nullopt;  // the text "max"
  }
  return std::nullopt;
}

bool is_scarce(std::uint64_t available, std::uint64_t all) { return available < all / PARTS; }

bool cgroup_is_full(const std::string& folder) {
  constexpr auto NO_LIMIT = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t limit = std::min(number_in(folder + "/memory.max").value_or(NO_LIMIT),
                                       number_in(folder + "/memory.high").value_or(NO_LIMIT));
  const auto current = number_in(folder + "/memory.current");
  if (limit == NO_LIMIT || !current) return false;
  const std::uint64_t unused_files = number_in(folder + "/memory.stat", "inactive_file").value_or(0);
  const std::uint64_t used = *current - std::min(*current, unused_files);
  return is_scarce(limit - std::min(limit, used), limit);
}

// This process's path in the cgroup v2 hierarchy. In a container it may contain folders above the mount.
std::filesystem::path own_cgroup(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

}  // namespace

// A limit of any enclosing cgroup counts too, so the loop walks up to the root.
bool memory_is_scarce(const std::string& root) {
  const auto all = number_in(root + "/proc/meminfo", "MemTotal:");
  const auto available = number_in(root + "/proc/meminfo", "MemAvailable:");
  if (all && available && is_scarce(*available, *all)) return true;
  for (auto path = own_cgroup(root);; path = path.parent_path()) {
    if (cgroup_is_full(root + "/sys/fs/cgroup/" + path.string())) return true;
    if (path.empty()) return false;
  }
}

}  // namespace lockstep
