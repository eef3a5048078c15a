#include "lockstep/named/process_sets.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/named/request.h"

namespace lockstep::named {

ProcessSets::ProcessSets(ProcessGroup all) : all_(std::move(all)) {
  groups_.emplace(GLOBAL_PROCESS_SET, all_);
}

int ProcessSets::add(const std::vector<int>& ranks) {
  const std::string name = str(all_.name(), " process set ", next_);
  std::shared_ptr<Backend> made = all_.backend().split({ranks}, name, {});
  const std::lock_guard lock(mutex_);
  groups_.emplace(next_, ProcessGroup(std::move(made), ranks));
  return next_++;
}

void ProcessSets::remove(int id) {
  const ProcessGroup removed = group(id);
  {
    const std::lock_guard lock(mutex_);
    groups_.erase(id);
  }
  removed.close();
}

void ProcessSets::close() {
  for (const int id : ids()) {
    if (id != GLOBAL_PROCESS_SET) remove(id);
  }
}

ProcessGroup ProcessSets::group(int id) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(id);
  if (found == groups_.end()) throw InvalidArgument(str("there is no process set ", id));
  return found->second;
}

std::vector<int> ProcessSets::ranks(int id) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(id);
  if (found == groups_.end()) throw InvalidArgument(str("there is no process set ", id));
  return found->second.ranks();
}

std::vector<int> ProcessSets::ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> list;
  for (const auto& [id, group] : groups_) list.push_back(id);
  return list;
}

std::optional<int> ProcessSets::find(const std::vector<int>& ranks) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, group] : groups_) {
    if (group.ranks() == ranks) return id;
  }
  return std::nullopt;
}

}  // namespace lockstep::named
