// Finds the faults of one group by comparing its members' records. For trace_analysis.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep::trace {

struct Member {
  int rank = 0;                        // in the group
  const RankTrace* process = nullptr;  // null if no records of that rank were found
  const GroupTrace* group = nullptr;   // null if the rank has not joined the group
};

struct GroupView {
  std::string name;
  std::vector<int> world_ranks;
  std::vector<Member> members;  // by rank
};

struct Finding {
  std::string sentence;
  std::vector<int> culprits;  // ranks of the world that others wait for
  std::vector<int> waiters;   // ranks of the world that wait
};

// Returns every group that some rank has not left, by name and members.
std::vector<GroupView> group_views(const std::map<int, RankTrace>& ranks);

std::optional<Finding> find_in_collectives(const GroupView& view);
std::vector<Finding> find_in_messages(const GroupView& view);
// "failed on rank 2: ...", as the first rank with a failure recorded it; empty if the group has not failed.
std::string failure_of(const GroupView& view);

// Returns the oldest call that the rank has not completed, in any group; null if none. `group` becomes that
// call's group.
const TraceRecord* oldest_open(const RankTrace& process, const GroupTrace** group);

// ---- words
std::string name_of(const RankTrace& process);       // "pid 4121, train"
std::string describe(const TraceRecord& record);     // "all_reduce #118 (float32[10], sum)"
std::string for_how_long(std::int64_t nanoseconds);  // "4.1 s"
std::string list_of(const std::vector<int>& ranks);  // "rank 2", "ranks 0, 1 and 3"
std::string upper_first(std::string text);

}  // namespace lockstep::trace
