// Groups of some of the job's ranks, with torch's names and meaning.
//
//   ProcessGroup pair = lockstep::new_group({0, 2});  // every rank of the world calls it
//   int sum = lockstep::get_rank();
//   comm::all_reduce(pair, std::span(&sum, 1));  // 2 on ranks 0 and 2; nothing elsewhere
//   lockstep::destroy_process_group(pair);
//
//   auto [mine, all] = lockstep::new_subgroups(2);                          // {0, 1}, {2, 3}, ...
//   ProcessGroup column = lockstep::split_group(world(), /*color=*/get_rank() % 2, /*key=*/get_rank());
//
// Ranks       those of the world ("global ranks") where a list of ranks is given or returned.
// Collective  everything that makes groups is called by every rank of the world (split_group: of the
//             parent), members or not, with the same arguments in the same order; it blocks until all have.
//             Mismatch tells both calls. With use_local_synchronization only the members of a new_group call
//             it, and it blocks until these have. Two ranks make such groups that both are in in the same
//             order:
//               if (stage == 0) pipeline = new_group({0, 4}, {.use_local_synchronization = true});
// Members     get a group; the others get one whose rank() is -1 and whose collectives do nothing (torch's
//             NON_GROUP_MEMBER).
// Fails       InvalidArgument, before anything is sent, for ranks that are not of the world or occur twice.
//             Otherwise as an all_gather on the world.
// Lifetime    until destroy_process_group(group), or until the world is destroyed, which closes its
//             sub-groups. Making and destroying groups over and over does not grow anything; dropping the
//             last copy without destroying it does.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct NewGroupOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // the world's if not said
  std::string backend = {};  // the world's if empty; another one of `lockstep info` is set up over the world
  std::string name = {};     // for error messages; "group 1", "group 2", ... or "PARENT/split" if empty
  // new_group only: the group's members alone call it, for themselves. Elsewhere the call does nothing.
  bool use_local_synchronization = false;
};

// The group of `ranks`, in ascending order whatever the order here (as torch). An empty list makes a group of
// nobody.
ProcessGroup new_group(std::vector<int> ranks, const NewGroupOptions& options = {});
// Of all ranks (torch's ranks=None).
ProcessGroup new_group(const NewGroupOptions& options = {});

struct Subgroups {
  ProcessGroup mine;  // not a member if this rank is in none
  std::vector<ProcessGroup> all;
};
// Consecutive groups of `group_size` ranks, which must divide the number of ranks.
Subgroups new_subgroups(int group_size, const NewGroupOptions& options = {});
// One group for each list; no rank may be in two.
Subgroups new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup,
                                       const NewGroupOptions& options = {});

// MPI_Comm_split: ranks of `parent` that give the same color form a group, ordered by key, then by rank in
// the parent. A negative color takes part in no group. Called by the ranks of `parent`.
ProcessGroup split_group(const ProcessGroup& parent, int color, int key = 0,
                         const NewGroupOptions& options = {});

// Between ranks of the world and ranks of a group. Throw InvalidArgument when there is no such rank.
int get_group_rank(const ProcessGroup& group, int global_rank);
int get_global_rank(const ProcessGroup& group, int group_rank);
std::vector<int> get_process_group_ranks(const ProcessGroup& group);

// This process's rank in the group and how many there are; -1 in a process that is not in it.
int get_rank(const ProcessGroup& group);
int get_world_size(const ProcessGroup& group);

// Leaves the group: its later calls throw Aborted here, and PeerLost on members that still need this rank.
// Does not wait. The world's is the same as destroy_process_group(). Nothing happens in a process that is not
// in the group.
void destroy_process_group(const ProcessGroup& group);

}  // namespace lockstep
