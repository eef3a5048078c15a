// analyze(): explains flight records in one paragraph. It says which rank is missing or ahead and in which
// operation, which ranks disagree, which message was never received, or that no rank waits. Pure.
//
//   std::puts(analyze(live_traces(4121)).c_str());
//   // Rank 2 (pid 4121) is missing from all_reduce #118 (float32[1000000], sum) on group "world": its last
//   // call was all_reduce #117 (float32[1000000], sum), done 4.2 s before; ranks 0, 1 and 3 have waited in
//   // #118 for 4.1 s.
//
// Ranks are those of the group that is named. Times are before the moment at which the rank's records were
// read. A missing rank may itself wait in another group. The sentence about that other group comes first,
// because it is nearer to the cause.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep {

// `traces` are those of one job, in any order. If a rank has several (from the files of several ranks), the
// latest counts.
std::string analyze(const std::vector<RankTrace>& traces);

// Separates the traces by job, in the order of each job's first trace.
std::vector<std::vector<RankTrace>> by_job(const std::vector<RankTrace>& traces);

}  // namespace lockstep
