// hierarchical: a group of processes on several machines, where some ranks share a machine. Data moves over
// shared memory inside a machine, and between machines over messages of any carrier.
//
//   init_process_group("auto");  // "hierarchical": over TCP, as "auto" has it
//   init_process_group("hierarchical+gloo");  // over Gloo; "hierarchical+mpi": over MPI
//   // job/ does this
//   ProcessGroup world = make_hierarchical_group(GLOO_CARRIER, meeting, "world", {}, deadline);
//
// all_reduce  is pipelined in three stages: in each machine by all of its ranks, between the machines, in
//             each machine again. As many connections serve between two machines as the smaller machine has
//             ranks (comm/algorithms/between_nodes.cpp). Each machine sends 2 (M - 1) / M of the bytes for M
//             machines, instead of that much for every rank.
// broadcast   reaches each machine once, over as many connections, and is spread there.
// all_gather  sends each rank's part to each other machine once, where it is spread.
// reduce_scatter   combines in each machine its contributions to a rank's result, and sends that rank the
//                  sum.
// reduce      combines in each machine, whose ranks then each send the root a slice of the sum.
// Bits        are those of one machine. Some calls would round differently if machines summed first: sums and
//             products of floating point. They are exchanged between all ranks, over the carrier alone,
//             unless every machine has the same power of two of ranks, numbered in a row (the last machine
//             may have fewer). Sums of float16 and bfloat16 travel as float32, so that they are rounded once.
//             That needs memory for a copy as float32, and saves nothing between machines of two ranks. So
//             there, and in reduce, such sums are exchanged between all ranks too.
// The rest    of the verbs go over the carrier, between ranks of one machine too: barrier, gather, scatter,
//             all_to_all, send and recv. Between two ranks of a machine, the receiver reads a message above
//             64 KiB once, out of the sender's memory, if the kernel permits that (os/peer_memory.h). Errors
//             and deadlines are the carrier's: tcp/backend.h, gloo/backend.h, mpi/backend.h.
// Groups      whose ranks are all on one machine use shared memory alone. Groups whose ranks are each on a
//             machine of their own use the carrier alone ("gloo").
// Memory      allocate_shared() gives memory that this machine's ranks share. all_reduce copies nothing
//             there.
// Machines    Ranks share a machine if a descriptor could be passed between all of them (same_machine.h).
//             Ranks whose LOCKSTEP_NODE differ count as on different machines.
// CUDA        memory in the same two levels is "hierarchical+nccl" (nccl/backend.h).
// One machine alone gives the group of "shm". One rank on each machine gives the group of the carrier.
#pragma once

#include <string>

#include "lockstep/comm/backends/messages/carrier.h"

namespace lockstep {

// Collective over the meeting's ranks. Throws what shm_backend.h and the carrier's backend.h list.
ProcessGroup make_hierarchical_group(const messages::Carrier& carrier, Meeting& meeting,
                                     const std::string& group_name, const GroupOptions& options,
                                     Deadline deadline);

}  // namespace lockstep
