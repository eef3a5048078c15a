// The sub-groups of the world, from making to destroy_process_group(). Used by this room only; programs use
// groups.h.
//
// Threads: own lock.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

// The world was made: no sub-groups yet, and what new ones take as their defaults.
void begin_group_list(const GroupOptions& defaults);
// Closes all of them, newest first: what destroying the world does.
void close_listed_groups();

GroupOptions default_group_options();
// "group 1", "group 2", ...: the same on every rank, because every rank makes every group.
std::string next_group_name();
// "group of 0, 2", and from the second time on "group of 0, 2 (2)": the same on these ranks, which make such
// groups alone.
std::string next_group_name_of(const std::vector<int>& ranks);

void list_group(const ProcessGroup& group);
// False if it was not listed (any more).
bool unlist_group(const ProcessGroup& group);

}  // namespace lockstep
