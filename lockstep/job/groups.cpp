#include "lockstep/job/groups.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/registry.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/check.h"
#include "lockstep/comm/group/split_agreement.h"
#include "lockstep/comm/meeting/group_meeting.h"
#include "lockstep/job/group_list.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

using comm::refuse;
using Parts = std::vector<std::vector<int>>;

GroupOptions group_options(const NewGroupOptions& options) {
  GroupOptions group = default_group_options();
  if (options.timeout) group.timeout = bounded_timeout(*options.timeout);
  return group;
}

std::vector<int> sorted_ranks(const char* function, std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= get_world_size())
      refuse(function, world(), ranks[i], " is not a rank of the world (0 to ", get_world_size() - 1, ")");
    if (i > 0 && ranks[i] == ranks[i - 1]) refuse(function, world(), "rank ", ranks[i], " occurs twice");
  }
  return ranks;
}

// Returns the registry's row if `name` is not the parent's backend, else null.
const BackendInfo* other_backend(const char* function, const ProcessGroup& parent, const Parts& parts,
                                 const std::string& name) {
  if (name.empty() || name == "auto" || name == parent.backend_name()) return nullptr;
  std::string names = str("auto, ", parent.backend_name());
  for (const BackendInfo& row : backends()) {
    if (row.name != name) {
      names += row.name == parent.backend_name() ? std::string() : str(", ", row.name);
      continue;
    }
    const bool alone =
        std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.size() <= 1; });
    if (!row.serves_many && !alone)
      refuse(function, parent, "backend \"", name, "\" serves groups of one rank");
    return &row;
  }
  refuse(function, parent, "there is no backend \"", printable(name), "\"; there are ", names);
}

std::vector<int> global_ranks(const ProcessGroup& parent, const std::vector<int>& part) {
  std::vector<int> ranks;
  for (const int rank : part) ranks.push_back(parent.ranks()[static_cast<std::size_t>(rank)]);
  return ranks;
}

// Makes the group over another backend. Its members meet through `first`, a group over the parent's backend.
std::shared_ptr<Backend> over_other_backend(const BackendInfo& row, const ProcessGroup& first,
                                            const std::string& name, const GroupOptions& options) {
  const Deadline deadline = Deadline::in(options.timeout);
  GroupMeeting meeting(first);
  if (row.name != "shm") return row.make(meeting, name, options, deadline).shared_backend();
  Hub hub = machine_meeting(meeting, deadline);
  return row.make(hub, name, options, deadline).shared_backend();
}

// Makes the group of the part that contains this rank; not a member if no part does. Parts have ranks of the
// parent.
ProcessGroup make_parts(const char* function, const ProcessGroup& parent, const Parts& parts,
                        const std::string& name, const NewGroupOptions& options) {
  const GroupOptions group = group_options(options);
  const BackendInfo* other = other_backend(function, parent, parts, options.backend);
  const std::vector<int>* mine = part_of(parts, parent.rank());
  std::shared_ptr<Backend> backend = options.use_local_synchronization
                                         ? parent.backend().split_over(parts.front(), name, group)
                                         : parent.backend().split(parts, name, group);
  if (mine == nullptr) return {nullptr, {}};
  ProcessGroup made(std::move(backend), global_ranks(parent, *mine));
  if (other != nullptr) {
    const ProcessGroup first = std::move(made);
    made = ProcessGroup(over_other_backend(*other, first, name, group), first.ranks());
    first.close();
  }
  list_group(made);
  return made;
}

// The name is the same on every rank of the world, because every rank makes all groups.
std::string name_of_new(const NewGroupOptions& options) {
  const std::string next = next_group_name();
  return options.name.empty() ? next : options.name;
}

// Only the members know of this call, so its name must not use the number that all ranks count.
ProcessGroup new_group_of_members(const std::vector<int>& ranks, const NewGroupOptions& options) {
  if (!std::binary_search(ranks.begin(), ranks.end(), world().rank())) return {nullptr, ranks};
  const std::string name = options.name.empty() ? next_group_name_of(ranks) : options.name;
  return make_parts("new_group", world(), {ranks}, name, options);
}

void refuse_local_synchronization(const char* function, const ProcessGroup& parent,
                                  const NewGroupOptions& options) {
  if (!options.use_local_synchronization) return;
  refuse(function, parent, "use_local_synchronization is for new_group: all ranks of ", parent.name(),
         " make these groups together");
}

}  // namespace

ProcessGroup new_group(std::vector<int> ranks, const NewGroupOptions& options) {
  ranks = sorted_ranks("new_group", std::move(ranks));
  if (options.use_local_synchronization) return new_group_of_members(ranks, options);
  const Parts parts = ranks.empty() ? Parts() : Parts{ranks};
  const ProcessGroup mine = make_parts("new_group", world(), parts, name_of_new(options), options);
  return mine.is_member() ? mine : ProcessGroup(nullptr, std::move(ranks));
}

ProcessGroup new_group(const NewGroupOptions& options) { return new_group(world().ranks(), options); }

Subgroups new_subgroups(int group_size, const NewGroupOptions& options) {
  if (group_size < 1 || get_world_size() % group_size != 0) {
    refuse("new_subgroups", world(), "group_size ", group_size, " must divide the ", get_world_size(),
           " ranks of the world");
  }
  Parts parts;
  for (int first = 0; first < get_world_size(); first += group_size) {
    std::vector<int>& part = parts.emplace_back(static_cast<std::size_t>(group_size));
    std::iota(part.begin(), part.end(), first);
  }
  return new_subgroups_by_enumeration(parts, options);
}

Subgroups new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup,
                                       const NewGroupOptions& options) {
  constexpr const char* FUNCTION = "new_subgroups_by_enumeration";
  refuse_local_synchronization(FUNCTION, world(), options);
  Parts parts;
  std::vector<int> seen;
  for (const auto& ranks : ranks_per_subgroup) {
    if (ranks.empty()) refuse(FUNCTION, world(), "subgroup ", parts.size(), " has no ranks");
    parts.push_back(sorted_ranks(FUNCTION, ranks));
    for (const int rank : ranks) {
      if (std::find(seen.begin(), seen.end(), rank) != seen.end())
        refuse(FUNCTION, world(), "rank ", rank, " is in two subgroups");
    }
    seen.insert(seen.end(), ranks.begin(), ranks.end());
  }
  Subgroups made = {make_parts(FUNCTION, world(), parts, name_of_new(options), options), {}};
  for (const auto& part : parts) {
    const bool is_mine = made.mine.is_member() && made.mine.ranks() == part;
    made.all.push_back(is_mine ? made.mine : ProcessGroup(nullptr, part));
  }
  return made;
}

// Every rank gathers the colors and keys of all ranks, so all derive the same parts.
ProcessGroup split_group(const ProcessGroup& parent, int color, int key, const NewGroupOptions& options) {
  if (!parent.is_member()) return {nullptr, {}};
  refuse_local_synchronization("split_group", parent, options);
  const auto size = static_cast<std::size_t>(parent.size());
  const int mine[2] = {color, key};
  std::vector<int> all(2 * size);
  comm::all_gather(parent, std::span<const int>(mine), std::span(all));
  std::vector<int> order;  // ranks of the parent that are in a group
  for (int r = 0; r < parent.size(); ++r) {
    if (all[2 * static_cast<std::size_t>(r)] >= 0) order.push_back(r);
  }
  const auto place = [&](int rank) {
    return std::pair(all[2 * static_cast<std::size_t>(rank)], all[2 * static_cast<std::size_t>(rank) + 1]);
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return place(a) < place(b); });
  Parts parts;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || place(order[i]).first != place(order[i - 1]).first) parts.emplace_back();
    parts.back().push_back(order[i]);
  }
  const std::string name = options.name.empty() ? parent.name() + "/split" : options.name;
  return make_parts("split_group", parent, parts, name, options);
}

int get_group_rank(const ProcessGroup& group, int global_rank) {
  const auto& ranks = group.ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  if (found == ranks.end()) {
    throw InvalidArgument(
        str("get_group_rank: rank ", global_rank, " of the world is not in group \"", group.name(), "\""));
  }
  return static_cast<int>(found - ranks.begin());
}

int get_global_rank(const ProcessGroup& group, int group_rank) {
  if (group_rank < 0 || group_rank >= group.size()) {
    throw InvalidArgument(str("get_global_rank: group \"", group.name(), "\" has no rank ", group_rank,
                              ", it has ", group.size(), " ranks"));
  }
  return group.ranks()[static_cast<std::size_t>(group_rank)];
}

std::vector<int> get_process_group_ranks(const ProcessGroup& group) { return group.ranks(); }

int get_rank(const ProcessGroup& group) { return group.rank(); }
int get_world_size(const ProcessGroup& group) { return group.is_member() ? group.size() : -1; }

void destroy_process_group(const ProcessGroup& group) {
  if (!group.is_member()) return;
  if (is_initialized() && &group.backend() == &world().backend()) return destroy_process_group();
  unlist_group(group);
  group.close();
}

}  // namespace lockstep
