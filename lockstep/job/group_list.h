// The sub-groups of the world, from their creation to destroy_process_group(). Only this room uses it;
// programs use groups.h.
//
// Threads: own lock.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

// Called when the world has been made: there are no sub-groups yet, and new ones get `defaults`.
void begin_group_list(const GroupOptions& defaults);
// Closes all sub-groups, newest first, before the world is destroyed.
void close_listed_groups();

GroupOptions default_group_options();
// "group 1", "group 2", ... The names are the same on every rank, because every rank makes every group.
std::string next_group_name();
// "group of 0, 2", and from the second time on "group of 0, 2 (2)". The names are the same on these ranks,
// although no other rank knows of the groups.
std::string next_group_name_of(const std::vector<int>& ranks);

void list_group(const ProcessGroup& group);
// Returns false if the group is not listed.
bool unlist_group(const ProcessGroup& group);

}  // namespace lockstep
