#include "lockstep/os/cpu_share.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/str.h"
#include "lockstep/os/cpu_topology.h"

namespace lockstep {
namespace {

constexpr std::string_view DIGITS = "0123456789abcdef";

}  // namespace

CpuShare cpu_share() { return {affinity_mask(), cgroup_cpu_quota()}; }

int usable_cpus(const std::vector<CpuShare>& shares) {
  std::set<int> cpus;
  for (const CpuShare& share : shares) cpus.insert(share.cpus.begin(), share.cpus.end());
  int count = static_cast<int>(cpus.size());
  for (const CpuShare& share : shares) {
    if (share.quota && *share.quota < count) count = static_cast<int>(*share.quota);
  }
  return std::max(count, 1);
}

std::string text_of(const CpuShare& share) {
  std::string text(static_cast<std::size_t>(*share.cpus.rbegin()) / 4 + 1, '0');
  for (const int cpu : share.cpus) {
    char& digit = text[static_cast<std::size_t>(cpu) / 4];
    digit = DIGITS[DIGITS.find(digit) | 1U << static_cast<unsigned>(cpu) % 4];
  }
  return share.quota ? str(text, "/", *share.quota) : text;
}

std::optional<CpuShare> parse_cpu_share(std::string_view text) {
  CpuShare share;
  const std::size_t slash = text.find('/');
  for (std::size_t i = 0; i < std::min(slash, text.size()); ++i) {
    const std::size_t digit = DIGITS.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    for (std::size_t bit = 0; bit < 4; ++bit) {
      if ((digit >> bit & 1U) != 0) share.cpus.insert(static_cast<int>(4 * i + bit));
    }
  }
  if (slash != std::string_view::npos) {
    const std::string_view number = text.substr(slash + 1);
    double quota = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), quota);
    if (error != std::errc() || end != number.data() + number.size() || !(quota > 0)) return std::nullopt;
    share.quota = quota;
  }
  if (share.cpus.empty()) return std::nullopt;
  return share;
}

}  // namespace lockstep
