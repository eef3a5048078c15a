#include "lockstep/compat/horovod/basics.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/named/session.h"

namespace lockstep::compat::horovod {

int ProcessSet::process_set_id() const {
  if (!is_added())
    throw InvalidArgument(str("the process set of ", rank_list(state_->ranks),
                              " has not been added; give it to init(), "
                              "or call add_process_set() on every rank"));
  return state_->id;
}

std::vector<int> ProcessSet::ranks() const { return named::engine()->process_sets().ranks(process_set_id()); }
int ProcessSet::size() const { return named::engine()->process_sets().group(process_set_id()).size(); }
int ProcessSet::rank() const { return named::engine()->process_sets().rank_in(process_set_id()); }

void init(const std::vector<ProcessSet>& process_sets) {
  if (named::is_started()) return;
  std::vector<std::vector<int>> lists;
  for (const ProcessSet& set : process_sets) {
    std::sort(set.state_->ranks.begin(), set.state_->ranks.end());
    lists.push_back(set.state_->ranks);
  }
  named::start(lists);
  int next = 1;
  for (const ProcessSet& set : process_sets) set.state_->id = next++;
}

void shutdown() { named::stop(); }
bool is_initialized() { return named::is_started(); }

// The engine is asked first, because it is what init() starts.
int rank() { return named::engine()->process_sets().all().rank(); }
int size() { return named::engine()->process_sets().all().size(); }
int local_rank() { return (void)named::engine(), get_local_rank(); }
int local_size() { return (void)named::engine(), get_local_world_size(); }
int cross_rank() { return named::places().cross_rank; }
int cross_size() { return named::places().cross_size; }
bool is_homogeneous() { return named::places().is_homogeneous; }

ProcessSet add_process_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ProcessSet made(ranks);
  made.state_->id = named::engine()->add_process_set(ranks);
  return made;
}

void remove_process_set(const ProcessSet& set) {
  named::engine()->remove_process_set(set.process_set_id());
  set.state_->id = -1;
}

void start_timeline(const std::string& path, bool mark_cycles) {
  named::engine()->start_timeline(path, mark_cycles);
}
void stop_timeline() { named::engine()->stop_timeline(); }

}  // namespace lockstep::compat::horovod
