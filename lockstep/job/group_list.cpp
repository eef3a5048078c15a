#include "lockstep/job/group_list.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

struct GroupList {
  std::mutex mutex;
  // guarded by mutex
  std::vector<ProcessGroup> groups;
  GroupOptions defaults;
  unsigned names = 0;
  std::map<std::vector<int>, unsigned> names_of;  // groups that only their members made
};

GroupList& list() {
  static auto* const instance = new GroupList;  // outlives static destructors, like the job
  return *instance;
}

}  // namespace

void begin_group_list(const GroupOptions& defaults) {
  const std::lock_guard lock(list().mutex);
  list().groups.clear();
  list().defaults = defaults;
  list().names = 0;
  list().names_of.clear();
}

void close_listed_groups() {
  std::vector<ProcessGroup> groups;
  {
    const std::lock_guard lock(list().mutex);
    groups = std::exchange(list().groups, {});
  }
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) group->close();
}

GroupOptions default_group_options() {
  const std::lock_guard lock(list().mutex);
  return list().defaults;
}

std::string next_group_name() {
  const std::lock_guard lock(list().mutex);
  return str("group ", ++list().names);
}

std::string next_group_name_of(const std::vector<int>& ranks) {
  const std::lock_guard lock(list().mutex);
  const unsigned count = ++list().names_of[ranks];
  return str("group of ", number_list(ranks), count == 1 ? "" : str(" (", count, ")"));
}

void list_group(const ProcessGroup& group) {
  if (!group.is_member()) return;
  const std::lock_guard lock(list().mutex);
  list().groups.push_back(group);
}

bool unlist_group(const ProcessGroup& group) {
  const std::lock_guard lock(list().mutex);
  return std::erase_if(list().groups,
                       [&](const ProcessGroup& listed) { return &listed.backend() == &group.backend(); }) > 0;
}

}  // namespace lockstep
