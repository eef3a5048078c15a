#include "cli/plan/sizes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>

#include "cli/arguments.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr double LARGEST = 1e18;  // keeps sums and products far from overflow

struct SizeUnit {
  std::string_view name;
  double value;
};

constexpr std::array COUNT_UNITS =
    std::to_array<SizeUnit>({{"", 1}, {"K", 1e3}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}});
constexpr std::array BYTE_UNITS = std::to_array<SizeUnit>({{"B", 1},
                                                           {"kB", 1e3},
                                                           {"KB", 1e3},
                                                           {"MB", 1e6},
                                                           {"GB", 1e9},
                                                           {"TB", 1e12},
                                                           {"KiB", 0x1p10},
                                                           {"MiB", 0x1p20},
                                                           {"GiB", 0x1p30},
                                                           {"TiB", 0x1p40}});

std::optional<double> parse_size_in(std::span<const SizeUnit> units, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit.starts_with(' ')) unit.remove_prefix(1);  // bytes_text() writes a space
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const auto& row) { return row.name == unit; });
  if (found == units.end()) return std::nullopt;
  const double size = std::round(value * found->value);
  return size >= 1 && size <= LARGEST ? std::optional(size) : std::nullopt;  // false for NaN
}

// Chooses the unit with at most three digits before the point.
std::string size_in(std::span<const std::string_view> units, double size) {
  std::size_t unit = 0;
  for (; size >= 999.5 && unit + 1 < units.size(); ++unit) size /= 1000;
  const int decimals = unit == 0 ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  const double scale = std::pow(10, decimals);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, std::round(size * scale) / scale);
  return units[unit].empty() ? text.data() : str(text.data(), ' ', units[unit]);
}

}  // namespace

double parse_count(std::string_view option, const std::string& text) {
  if (const auto count = parse_size_in(COUNT_UNITS, text)) return *count;
  throw UsageError(str(option, " takes a number such as 25000000, 124M, 7.5B or 1T, not ", in_quotes(text)));
}

double parse_bytes(std::string_view option, const std::string& text) {
  if (const auto bytes = parse_size_in(BYTE_UNITS, text)) return *bytes;
  throw UsageError(
      str(option, " takes a number of bytes with its unit, such as 80GB or 16GiB, not ", in_quotes(text)));
}

std::string bytes_text(double bytes) {
  constexpr std::array<std::string_view, 6> UNITS = {"B", "kB", "MB", "GB", "TB", "PB"};
  return size_in(UNITS, bytes);
}

std::string count_text(double count) {
  constexpr std::array<std::string_view, 5> UNITS = {"", "K", "M", "B", "T"};
  return size_in(UNITS, count);
}

}  // namespace lockstep::cli
