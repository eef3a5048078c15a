// What `lockstep bench` measures, and its output. Pure.
//
//   parse_sizes("8,1K,25M")                        // {8, 1024, 26214400}
//   bus_factor(Verb::ALL_REDUCE, 4)                // 1.5: busbw = algbw * 2 * (n - 1) / n
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"

namespace lockstep::cli {

// Returns bytes; K, M and G are powers of 1024. UsageError for any other text.
std::vector<std::size_t> parse_sizes(const std::string& text);

// The verb of that name. UsageError that lists the names.
Verb parse_verb(const std::string& name);

// The factor from the operation's bytes per second to those of the busiest link, as nccl-tests defines it. It
// makes verbs and numbers of ranks comparable.
double bus_factor(Verb verb, int ranks);

// How many rounds one size is measured: about 256 MiB in all, at least 20 and at most 2000 rounds.
std::size_t rounds_for(std::size_t bytes);

struct BenchRow {
  // bytes of the whole operation: those that all_gather gathers, or that reduce_scatter takes
  std::size_t bytes = 0;
  std::size_t count = 0;
  double median_us = 0;
  double best_us = 0;
  std::optional<double> bound_us;  // bench_bound.h; none if the ranks are not on one machine
};

std::string header_line();
std::string text_line(const BenchRow& row, Verb verb, int ranks);
std::string json_line(const BenchRow& row, Verb verb, int ranks, const std::string& backend,
                      const std::string& memory);

}  // namespace lockstep::cli
