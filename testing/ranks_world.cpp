#include "testing/ranks_world.h"

#include "lockstep/comm/backends/shared/thread_backend.h"
#include "lockstep/job/job.h"

namespace lockstep::harness {

void join_world(const std::string& backend) { init_process_group(backend); }

void leave_world() {
  if (is_initialized()) destroy_process_group();
}

const ProcessGroup& process_world() { return lockstep::world(); }

std::vector<ProcessGroup> groups_of_threads(int ranks) { return make_thread_groups(ranks); }

}  // namespace lockstep::harness
