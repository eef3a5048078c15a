// shm: ranks as processes of one machine that share memory.
//
//   Hub hub = Hub::adopt(...);                   // job/ does this: sockets between the ranks of the machine
//   ProcessGroup world = make_shm_group(hub, "world", {});
//
// Each rank makes a memfd for its data, and rank 0 makes another one for the group's control segment. The
// ranks pass them through the hub. Every rank also opens a process handle of every other rank while that rank
// is known to wait in the meeting.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/meeting/hub.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/trace/trace_memory.h"

namespace lockstep {

// Collective over the hub's ranks. Throws PeerLost or Timeout that names the missing ranks, and SystemError.
ProcessGroup make_shm_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline);
// The same for one machine of several. `job_ranks` are the numbers of these ranks in the job, and calls are
// recorded in `trace`.
ProcessGroup make_shm_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline, std::vector<int> job_ranks,
                            std::shared_ptr<TraceMemory> trace);

}  // namespace lockstep
