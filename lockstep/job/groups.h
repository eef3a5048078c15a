// Groups of some of the job's ranks, with torch's names and semantics.
//
//   ProcessGroup pair = lockstep::new_group({0, 2});  // every rank of the world calls it
//   int sum = lockstep::get_rank();
//   comm::all_reduce(pair, std::span(&sum, 1));  // 2 on ranks 0 and 2; nothing elsewhere
//   lockstep::destroy_process_group(pair);
//
//   auto [mine, all] = lockstep::new_subgroups(2);                          // {0, 1}, {2, 3}, ...
//   ProcessGroup column = lockstep::split_group(world(), /*color=*/get_rank() % 2, /*key=*/get_rank());
//
// Ranks       lists of ranks, given or returned, are ranks of the world ("global ranks").
// Collective  every rank of the world (split_group: of the parent) calls each function that makes groups,
//             also ranks that will not be members. They pass the same arguments in the same order. The call
//             blocks until all have called. A Mismatch names both calls. With use_local_synchronization only
//             the members of a new_group call it, and it blocks until these have called. Two ranks must make
//             such groups that contain both in the same order:
//               if (stage == 0) pipeline = new_group({0, 4}, {.use_local_synchronization = true});
// Members     get a group. Other ranks get an object whose rank() is -1 and whose collectives have no effect
//             (torch's NON_GROUP_MEMBER).
// Fails       InvalidArgument, before anything is sent, for ranks that are not in the world or occur twice.
//             Otherwise like an all_gather on the world.
// Lifetime    until destroy_process_group(group), or until the world is destroyed, which closes its
//             sub-groups. Making and destroying groups repeatedly uses no more memory; dropping the last copy
//             without destroying it does.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct NewGroupOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // default: the world's
  std::string backend = {};  // default: the world's; another backend of `lockstep info` is set up over it
  std::string name = {};     // for error messages; empty: "group 1", "group 2", ... or "PARENT/split"
  // new_group only: only the members call it. On other ranks the call has no effect.
  bool use_local_synchronization = false;
};

// The group of `ranks`, sorted ascending (like torch). An empty list makes a group without members.
ProcessGroup new_group(std::vector<int> ranks, const NewGroupOptions& options = {});
// The group of all ranks (torch's ranks=None).
ProcessGroup new_group(const NewGroupOptions& options = {});

struct Subgroups {
  ProcessGroup mine;  // not a member if this rank is in no subgroup
  std::vector<ProcessGroup> all;
};
// Consecutive groups of `group_size` ranks, which must divide the number of ranks.
Subgroups new_subgroups(int group_size, const NewGroupOptions& options = {});
// One group for each list; a rank may be in at most one.
Subgroups new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup,
                                       const NewGroupOptions& options = {});

// Like MPI_Comm_split: ranks of `parent` with the same color form a group, ordered by key, then by rank in
// the parent. A rank with a negative color is in no group. Every rank of `parent` calls it.
ProcessGroup split_group(const ProcessGroup& parent, int color, int key = 0,
                         const NewGroupOptions& options = {});

// Conversions between ranks of the world and ranks of a group. They throw InvalidArgument if the rank does
// not exist.
int get_group_rank(const ProcessGroup& group, int global_rank);
int get_global_rank(const ProcessGroup& group, int group_rank);
std::vector<int> get_process_group_ranks(const ProcessGroup& group);

// This process's rank in the group, and the group's size; -1 in a process that is not a member.
int get_rank(const ProcessGroup& group);
int get_world_size(const ProcessGroup& group);

// Leaves the group: its later calls throw Aborted on this rank, and PeerLost on members that still need this
// rank. Does not wait. For the world it is destroy_process_group(). No effect in a process that is not a
// member.
void destroy_process_group(const ProcessGroup& group);

}  // namespace lockstep
