#include "cli/bench_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr std::array VERBS = {Verb::ALL_REDUCE, Verb::BROADCAST, Verb::REDUCE,         Verb::ALL_GATHER,
                              Verb::GATHER,     Verb::SCATTER,   Verb::REDUCE_SCATTER, Verb::ALL_TO_ALL,
                              Verb::BARRIER,    Verb::SEND};

std::size_t parse_size(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const std::size_t shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0;
  const bool known = unit.empty() || shift != 0;
  if (error != std::errc() || !known || value == 0 ||
      value > (std::numeric_limits<std::size_t>::max() >> (shift + 1)))
    throw UsageError("a size is a number of bytes such as 8, 64K, 25M or 1G, not \"" + printable(text) +
                     "\"");
  return value << shift;
}

double gigabytes_per_second(const BenchRow& row) {
  return static_cast<double>(row.bytes) / row.median_us / 1e3;
}

}  // namespace

std::vector<std::size_t> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    sizes.push_back(parse_size(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return sizes;
}

Verb parse_verb(const std::string& name) {
  std::string names;
  for (const Verb verb : VERBS) {
    if (name == name_of(verb)) return verb;
    names += str(names.empty() ? "" : ", ", name_of(verb));
  }
  throw UsageError("lockstep bench needs a verb (" + names + ")" +
                   (name.empty() ? "" : ", not \"" + printable(name) + "\""));
}

double bus_factor(Verb verb, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (verb) {
    case Verb::ALL_REDUCE: return 2 * share;
    case Verb::ALL_GATHER:
    case Verb::GATHER:
    case Verb::SCATTER:
    case Verb::REDUCE_SCATTER:
    case Verb::ALL_TO_ALL: return share;
    default: return 1;
  }
}

std::size_t rounds_for(std::size_t bytes) {
  return std::clamp<std::size_t>((std::size_t{256} << 20U) / bytes, 20, 2000);
}

std::string header_line() {
  return "       bytes     elements    median us      best us   algbw GB/s   busbw GB/s     bound us   % of "
         "bound";
}

std::string text_line(const BenchRow& row, Verb verb, int ranks) {
  std::array<char, 160> line{};
  const double speed = gigabytes_per_second(row);
  std::snprintf(line.data(), line.size(), "%12zu %12zu %12.2f %12.2f %12.3f %12.3f", row.bytes, row.count,
                row.median_us, row.best_us, speed, speed * bus_factor(verb, ranks));
  std::string text = line.data();
  if (row.bound_us) {
    std::snprintf(line.data(), line.size(), " %12.2f %12.1f", *row.bound_us,
                  100 * *row.bound_us / row.median_us);
  } else {
    std::snprintf(line.data(), line.size(), " %12s %12s", "-", "-");
  }
  return text + line.data();
}

std::string json_line(const BenchRow& row, Verb verb, int ranks, const std::string& backend,
                      const std::string& memory) {
  const double speed = gigabytes_per_second(row);
  nlohmann::json json = {{"verb", name_of(verb)},      {"ranks", ranks},
                         {"backend", backend},         {"memory", memory},
                         {"bytes", row.bytes},         {"count", row.count},
                         {"median_us", row.median_us}, {"best_us", row.best_us},
                         {"algbw_gb_s", speed},        {"busbw_gb_s", speed * bus_factor(verb, ranks)}};
  if (row.bound_us) {
    json["bound_us"] = *row.bound_us;
    json["share_of_bound"] = *row.bound_us / row.median_us;
  }
  return json.dump();
}

}  // namespace lockstep::cli
