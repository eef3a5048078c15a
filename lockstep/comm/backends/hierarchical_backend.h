// Ranks as processes of several machines, of which some share one: over shared memory inside a machine and TCP between machines.
//
//   ProcessGroup world = make_hierarchical_group(meeting, "world", {}, deadline);   // job/ does this; also what "auto" makes
//
// all_reduce  in each machine by all of its ranks, between the machines by as many connections as the smallest has ranks, in each
//             machine again, pipelined (comm/algorithms/between_nodes.cpp). Each machine sends 2 (M - 1) / M of the bytes, M
//             machines, instead of as much for every rank.
// Bits        are those of one machine. What would round differently therefore goes the way of "tcp", between all ranks: float16 and
//             bfloat16; sums and products of floating point unless every machine has the same power of two of ranks, with
//             numbers in a row (the last one may have fewer).
// The rest    of the verbs, messages, errors and deadlines are those of "tcp" (tcp_backend.h).
// Groups      of ranks that are all on one machine are groups over shared memory.
// Memory      allocate_shared() gives memory that this machine's ranks share: all_reduce copies nothing there.
// Machines    Ranks are on one when a descriptor could be passed between all of them (same_machine.h). Those whose LOCKSTEP_NODE
//             differ count as on different ones.
// One machine alone gives the group of "shm"; a machine for each rank that of "tcp".
#pragma once

#include <string>

#include "lockstep/comm/meeting.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

// Collective over the meeting's ranks; for what it throws see tcp_mesh.h and shm_backend.h.
ProcessGroup make_hierarchical_group(Meeting& meeting, const std::string& group_name,
                                     const GroupOptions& options, Deadline deadline);

}  // namespace lockstep
