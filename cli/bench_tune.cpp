#include "cli/bench_tune.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/launch/prepare.h"
#include "lockstep/launch/run_ranks.h"
#include "lockstep/os/process.h"

namespace lockstep::cli {
namespace {

using shared::Path;
using shared::PATH_COUNT;
using shared::PathTable;

constexpr std::size_t WAYS = PATH_COUNT;
constexpr double NEVER = std::numeric_limits<double>::infinity();

// Returns how much longer a path takes than the best one at this size, as a share of the best time.
double excess(const TuneTimes& times, std::size_t way, std::size_t size) {
  double best = NEVER;
  for (const auto& row : times.times) best = std::min(best, row[size].value_or(NEVER));
  const auto mine = times.times[way][size];
  return mine ? *mine / best - 1 : NEVER;
}

std::vector<std::size_t> sizes_to_measure() {
  std::vector<std::size_t> sizes = {8, shared::PostLine::ROOM};
  for (std::size_t bytes = 256; bytes <= (std::size_t{64} << 20U); bytes *= 2) sizes.push_back(bytes);
  return sizes;
}

// Runs one job in which every all_reduce takes `path`. Returns the median at each size, as rank 0 printed it.
std::vector<std::optional<double>> measure_path(Path path, int ranks, const std::vector<std::size_t>& sizes) {
  std::string list;
  for (const std::size_t bytes : sizes) list += str(list.empty() ? "" : ",", bytes);
  LaunchSpec spec;
  spec.command = {program_file(), "bench",      "all_reduce", "--memory", "private", "--backend",
                  "shm",          "--no-bound", "--json",     "--sizes",  list};
  spec.ranks = ranks;
  spec.environment = {{"LOCKSTEP_PATHS", std::string(name_of(path))}};
  spec.prefix = false;
  spec.log_base.clear();
  const RunResult result = run_ranks(spec);
  if (result.exit_code != 0) {
    const auto& first = result.ranks.at(static_cast<std::size_t>(result.first_failure.value_or(0)));
    throw ProgramError(
        str("bench --tune: a job with LOCKSTEP_PATHS=", name_of(path), " failed: ", first.output),
        result.exit_code);
  }
  std::vector<std::optional<double>> times;
  std::istringstream lines(result.ranks.at(0).output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('{')) times.emplace_back(nlohmann::json::parse(line).at("median_us").get<double>());
  }
  if (times.size() != sizes.size())
    throw InternalError("bench --tune: a job printed something else than its rows");
  return times;
}

std::optional<double> median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TuneTimes measure_all(int ranks) {
  constexpr std::size_t ROUNDS = 3;
  TuneTimes result;
  result.bytes = sizes_to_measure();
  std::array<std::vector<std::vector<double>>, WAYS> samples;  // by path and size
  for (auto& way : samples) way.resize(result.bytes.size());
  // interleaved, so that a disturbance affects all paths
  for (std::size_t round = 0; round < ROUNDS; ++round) {
    for (std::size_t way = 0; way < WAYS; ++way) {
      std::vector<std::size_t> sizes = result.bytes;
      if (static_cast<Path>(way) == Path::INLINE)
        std::erase_if(sizes, [](std::size_t bytes) { return bytes > shared::PostLine::ROOM; });
      const auto times = measure_path(static_cast<Path>(way), ranks, sizes);
      for (std::size_t i = 0; i < times.size(); ++i) samples[way][i].push_back(*times[i]);
    }
  }
  for (std::size_t way = 0; way < WAYS; ++way) {
    for (const auto& values : samples[way])
      result.times[way].push_back(values.empty() ? std::nullopt : median(values));
  }
  return result;
}

void print(const TuneTimes& times, const PathTable& table) {
  std::printf("%12s", "bytes");
  for (std::size_t way = 0; way < WAYS; ++way)
    std::printf(" %12s", std::string(name_of(static_cast<Path>(way))).c_str());
  std::puts("   best table");
  for (std::size_t i = 0; i < times.bytes.size(); ++i) {
    std::printf("%12zu", times.bytes[i]);
    for (std::size_t way = 0; way < WAYS; ++way) {
      if (const auto time = times.times[way][i]) {
        std::printf(" %12.2f", *time);
      } else {
        std::printf(" %12s", "-");
      }
    }
    std::printf("   %s\n", std::string(name_of(table.path_of(times.bytes[i]))).c_str());
  }
}

}  // namespace

PathTable best_paths(const TuneTimes& times) {
  const std::size_t sizes = times.bytes.size();
  struct Best {  // The best tables with a given number of ranges, for the first sizes.
    double cost = NEVER;
    std::size_t begin = 0;  // where the last range begins
    std::size_t way = 0;
  };
  std::vector<std::vector<Best>> best(WAYS + 1, std::vector<Best>(sizes + 1));
  best[0][0].cost = 0;
  for (std::size_t ranges = 1; ranges <= WAYS; ++ranges) {
    for (std::size_t end = 1; end <= sizes; ++end) {
      for (std::size_t way = 0; way < WAYS; ++way) {
        double own = SWITCH;
        for (std::size_t begin = end; begin-- > 0;) {
          own += excess(times, way, begin);
          const double cost = best[ranges - 1][begin].cost + own;
          if (cost < best[ranges][end].cost) best[ranges][end] = {cost, begin, way};
        }
      }
    }
  }
  std::size_t ranges = 1;
  for (std::size_t more = 2; more <= WAYS; ++more) {
    if (best[more][sizes].cost < best[ranges][sizes].cost) ranges = more;
  }
  PathTable table;
  for (std::size_t end = sizes; ranges > 0; --ranges) {
    const Best& last = best[ranges][end];
    const std::size_t limit = end == sizes ? PathTable::NO_LIMIT : times.bytes[end - 1];
    table.entries[ranges - 1] = {static_cast<Path>(last.way), limit};
    end = last.begin;
  }
  return table;
}

int tune(int ranks) {
  std::printf("# all_reduce of private memory, %d ranks over shm, each way forced; median us of three runs\n",
              ranks);
  std::fflush(stdout);
  const TuneTimes times = measure_all(ranks);
  const PathTable table = best_paths(times);
  print(times, table);
  std::printf("LOCKSTEP_PATHS=%s\n", describe(table).c_str());
  return 0;
}

}  // namespace lockstep::cli
