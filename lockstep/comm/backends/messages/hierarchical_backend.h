// Ranks as processes of several machines, of which some share one: over shared memory inside a machine and
// messages between machines, which any carrier carries.
//
//   init_process_group("auto");  // "hierarchical": over TCP, as "auto" has it
//   init_process_group("hierarchical+gloo");  // over Gloo; "hierarchical+mpi": over MPI
//   // job/ does this
//   ProcessGroup world = make_hierarchical_group(GLOO_CARRIER, meeting, "world", {}, deadline);
//
// all_reduce  in each machine by all of its ranks, between the machines by as many connections as the
//             smallest has ranks, in each machine again, pipelined (comm/algorithms/between_nodes.cpp). Each
//             machine sends 2 (M - 1) / M of the bytes, M machines, instead of as much for every rank.
// broadcast   comes to each machine once, through as many connections, and is spread there.
// all_gather  sends each rank's part to each other machine once, where it is spread.
// reduce_scatter   combines in each machine what it has for a rank, and sends that rank the sum.
// reduce      combines in each machine, and its ranks send the root a slice of the sum each.
// Bits        are those of one machine. What would round differently therefore goes the way of the carrier
//             alone, between all ranks: sums and products of floating point unless every machine has the same
//             power of two of ranks, with numbers in a row (the last one may have fewer). Those of float16
//             and bfloat16 travel as float32, so that they are rounded once, which needs memory for a copy as
//             large, and saves nothing between machines of two ranks, where they go the way of the carrier,
//             too, as those of reduce do.
// The rest    of the verbs and messages go over the carrier, between ranks of one machine too: barrier,
//             gather, scatter, all_to_all, send and recv. What is larger than 64 KiB is copied once there,
//             out of the sender's memory by the receiver, where the kernel lets it (os/peer_memory.h). Errors
//             and deadlines are the carrier's: tcp/backend.h, gloo/backend.h, mpi/backend.h.
// Groups      of ranks that are all on one machine are groups over shared memory, of ranks that are each on
//             another one groups of the carrier ("gloo").
// Memory      allocate_shared() gives memory that this machine's ranks share: all_reduce copies nothing
//             there.
// Machines    Ranks are on one when a descriptor could be passed between all of them (same_machine.h). Those
//             whose LOCKSTEP_NODE differ count as on different ones.
// CUDA        memory in the same two levels is "hierarchical+nccl" (nccl/backend.h).
// One machine alone gives the group of "shm"; a machine for each rank that of the carrier.
#pragma once

#include <string>

#include "lockstep/comm/backends/messages/carrier.h"

namespace lockstep {

// Collective over the meeting's ranks; for what it throws see shm_backend.h and the carrier.
ProcessGroup make_hierarchical_group(const messages::Carrier& carrier, Meeting& meeting,
                                     const std::string& group_name, const GroupOptions& options,
                                     Deadline deadline);

}  // namespace lockstep
