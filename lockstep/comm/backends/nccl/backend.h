// Ranks with a CUDA device each: tensors in their memory over NCCL, tensors in CPU memory over another
// backend.
//
//   init_process_group("nccl");                                  // as "cpu:auto,cuda:nccl"
//   init_process_group("cpu:hierarchical,cuda:nccl");
//   init_process_group("hierarchical+nccl");  // as "cpu:hierarchical,cuda:hierarchical+nccl"
//   all_reduce(gradients.cuda());  // returns at once; later work on the stream comes after it
//
// Device      one per rank: LOCAL_RANK modulo the number of devices, which init_process_group makes current.
//             Tensors on another device of this rank are refused.
// Streams     A call is in line behind what the caller's current stream holds, wait() puts it before what
//             follows there; the host waits for neither. wait(timeout) and is_completed() are of the device's
//             work itself.
// Agreement   The hosts tell each other of every call, over the CPU's backend, while NCCL already works:
//             ranks that disagree, a dead rank, a late one and NCCL's own errors end the group within a
//             moment, in our words, on all ranks; NCCL is aborted then, and what was under way on the device
//             has no meaning. The next call, in CPU memory too, wait() or is_completed() throws: so copy
//             results to the host, then barrier(), then keep them.
// Verbs       all. What NCCL cannot reduce (int16, uint16, bits, the product of complex numbers) is refused,
//             as are tags and ANY_SOURCE. A list of outputs (all_gather) is slower than one tensor
//             (all_gather_into_tensor).
// Messages    are launched when something of the group is waited for, all that were called until then as one.
//             A wait for another group's work does not do that.
// Levels      NCCL finds out itself what shares a machine, and chooses its ways by that. "hierarchical+nccl"
//             chooses for it: an all_reduce is one in each machine and one between machines by every rank,
//             pipelined (nccl/levels.h). It needs as many ranks on every machine; where they differ, and for
//             the other verbs, it is as "nccl". LOCKSTEP_NODE tells machines apart.
// barrier     is one of the hosts: it does not wait for streams.
// Bits        of sums are NCCL's, in its order, so they may differ from other backends'.
// NCCL_*      variables reach NCCL as they are; LOCKSTEP_NCCL is the path of the library.
// Limits      no CUDA graphs; one device per process.
// Throws      InvalidArgument, on all ranks: no NCCL, no device, an NCCL that differs from rank to rank.
//             DistBackendError: NCCL failed, in its own words.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

inline constexpr std::string_view NCCL = "nccl";
inline constexpr std::string_view HIERARCHICAL_NCCL = "hierarchical+nccl";

// `backend`: one of the two. Over shm on one machine, hierarchical on several.
ProcessGroup make_nccl_group(std::string_view backend, Meeting& meeting, const std::string& group_name,
                             const GroupOptions& options, Deadline deadline);
// The ranks of `cpu`, which serves CPU memory from then on as part of the new group. Collective over them.
// `local_rank` chooses the device.
ProcessGroup make_nccl_group(std::string_view backend, const ProcessGroup& cpu, const std::string& group_name,
                             const GroupOptions& options, int local_rank);
// What the group for CPU memory is called.
std::string cpu_group_name(const std::string& group_name);

}  // namespace lockstep
