#include "testing/ranks_world.h"

#include <stdexcept>

#if __has_include("lockstep/job/job.cpp")
#include "lockstep/job/job.h"
#define HAS_JOB 1
#endif
#if __has_include("lockstep/comm/backends/thread_backend.h")
#include "lockstep/comm/backends/thread_backend.h"
#define HAS_THREADS 1
#endif

namespace lockstep::harness {

#ifdef HAS_JOB
void join_world(const std::string& backend) { init_process_group(backend); }
void leave_world() {
  if (is_initialized()) destroy_process_group();
}
const ProcessGroup& process_world() { return lockstep::world(); }
#else
void join_world(const std::string&) {}
void leave_world() {}
const ProcessGroup& process_world() { throw std::runtime_error("lockstep/job is not there yet"); }
#endif

#ifdef HAS_THREADS
std::vector<ProcessGroup> groups_of_threads(int ranks) { return make_thread_groups(ranks); }
#else
std::vector<ProcessGroup> groups_of_threads(int) { throw std::runtime_error("the thread backend is not there yet"); }
#endif

}  // namespace lockstep::harness
