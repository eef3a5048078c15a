// ProcessSets: the groups of some of the job's ranks, by Horovod's numbers. 0 is all ranks.
//
//   ProcessSets sets(group);
//   const int id = sets.add({0, 2});         // collective: every rank of the job
//   if (sets.rank_in(id) >= 0) comm::barrier(sets.group(id));
//
// Threads: own lock. add(), remove() and close() are for the engine's thread, which alone uses the groups.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC named {

class ProcessSets {
 public:
  explicit ProcessSets(ProcessGroup all);

  int add(const std::vector<int>& ranks);
  void remove(int id);
  void close();  // all but the group of all ranks

  const ProcessGroup& all() const { return all_; }
  ProcessGroup group(int id) const;      // throws InvalidArgument for an unknown id, as those below
  std::vector<int> ranks(int id) const;  // ranks of the job, ascending
  int rank_in(int id) const { return group(id).rank(); }  // -1: not a member
  std::vector<int> ids() const;
  std::optional<int> find(const std::vector<int>& ranks) const;  // the set that has these

 private:
  ProcessGroup all_;
  mutable std::mutex mutex_;
  // guarded by mutex_
  std::map<int, ProcessGroup> groups_;
  int next_ = 1;
};

}  // namespace named
}  // namespace lockstep
