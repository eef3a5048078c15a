// analyze(): one paragraph for people about what the flight recorders say: which rank is missing or ahead and
// in which operation, who disagrees, what message was never received, or that nobody waits. Pure.
//
//   std::puts(analyze(live_traces(4121)).c_str());
//   // Rank 2 (pid 4121) is missing from all_reduce #118 (float32[1000000], sum) on group "world": its last
//   // call was
//   // all_reduce #117 (float32[1000000], sum), done 4.2 s before; ranks 0, 1 and 3 have waited in #118 for
//   // 4.1 s.
//
// Ranks are those of the group that is named. Times are before the moment at which the rank's records were
// read. A group in which a rank is missing that itself waits in another group comes behind that other group,
// which is nearer to the cause.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep {

// `traces` of one job, in any order; of several for one rank (files of several ranks) the last is taken.
std::string analyze(const std::vector<RankTrace>& traces);

// The traces apart by job, in the order of their first.
std::vector<std::vector<RankTrace>> by_job(const std::vector<RankTrace>& traces);

}  // namespace lockstep
