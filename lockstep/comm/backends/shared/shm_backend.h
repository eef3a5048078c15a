// Ranks as processes of one machine that share memory.
//
//   Hub hub = Hub::adopt(...);                   // job/ does this: sockets between the ranks of the machine
//   ProcessGroup world = make_shm_group(hub, "world", {});
//
// Each rank makes one memfd for its data, rank 0 one more for the group's control segment; they are passed
// through the hub, and every rank opens a process handle of every other while that one is known to wait in
// the meeting.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/meeting/hub.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/trace/trace_memory.h"

namespace lockstep {

// Collective over the hub's ranks. Throws PeerLost or Timeout, naming who is missing, and SystemError.
ProcessGroup make_shm_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline);
// The same for one machine of several: `job_ranks` says which ranks of the job these are; recorded in
// `trace`.
ProcessGroup make_shm_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline, std::vector<int> job_ranks,
                            std::shared_ptr<TraceMemory> trace);

}  // namespace lockstep
