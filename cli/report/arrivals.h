// Finds, for each collective, the rank whose call began last: the rank that the others waited for. Pure.
//
//   const ClockCalls one = {"", {{0, calls_of_rank_0}, {1, calls_of_rank_1}}};
//   for (const RankArrivals& rank : arrivals_of(one)) rank.buckets.last;     // times that rank came last
//
// Only starts by one clock are compared. A collective counts if at least two ranks of its group have records
// on this clock, and each of them has one of the collective. A group name does not count if it names
// different groups, because a rank is in it twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/report/profile_input.h"
#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep::cli {

struct RankCalls {
  int rank = 0;  // in the world
  std::vector<ReportCall> calls;
};

// Ranks whose times are of one clock.
struct ClockCalls {
  std::string name;  // "host a"; empty: the clock of the profiler's traces
  std::vector<RankCalls> ranks;
};

struct ArrivalCount {
  std::size_t collectives = 0;         // number of this rank's collectives that count
  std::size_t last = 0;                // in how many of these this rank came last
  std::vector<std::int64_t> lateness;  // for these, nanoseconds after the first rank
};

struct RankArrivals {
  int rank = 0;
  ArrivalCount buckets;
  ArrivalCount others;
};

// One collective with the calls of all its ranks.
struct Arrival {
  bool is_bucket = false;
  int last = 0;               // rank
  std::int64_t lateness = 0;  // nanoseconds after the first
  std::vector<int> ranks = {};
};

using CollectiveName = std::pair<std::string, std::uint64_t>;  // group, sequence

std::map<CollectiveName, Arrival> arrivals(const ClockCalls& calls);
std::vector<RankArrivals> arrivals_of(const ClockCalls& calls);

ClockCalls calls_of(const std::vector<RankProfile>& profiles);
// For flight recorders: one result for each host of each job. Of several records of one rank the latest
// counts.
std::vector<ClockCalls> calls_of(const std::vector<RankTrace>& traces);

}  // namespace lockstep::cli
