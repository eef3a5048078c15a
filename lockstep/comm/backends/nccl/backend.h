// nccl: ranks with a CUDA device each. Tensors in the device's memory go over NCCL, tensors in CPU memory
// over another backend.
//
//   init_process_group("nccl");                                  // as "cpu:auto,cuda:nccl"
//   init_process_group("cpu:hierarchical,cuda:nccl");
//   init_process_group("hierarchical+nccl");  // as "cpu:hierarchical,cuda:hierarchical+nccl"
//   all_reduce(gradients.cuda());  // returns at once; later work on the stream comes after it
//
// Device      One per rank: LOCAL_RANK modulo the number of devices. init_process_group makes it current.
//             Tensors on another device of this rank are refused.
// Streams     A call takes effect after the earlier work of the caller's current stream, and wait() orders it
//             before later work there. The host waits for neither. wait(timeout) and is_completed() are about
//             the device's work itself.
// Agreement   The hosts tell each other of every call, over the CPU's backend, while NCCL already works.
//             Within a moment, all ranks hear of ranks that disagree, of a dead or late rank, and of NCCL's
//             errors, in Lockstep's words. NCCL is then aborted, and the results under way on the device have
//             no meaning. The next call, wait() or is_completed() throws, in CPU memory too. So copy results
//             to the host, then call barrier(), then save them.
// Verbs       all. Reductions that NCCL lacks are refused (int16, uint16, bits, the product of complex
//             numbers). So are tags and ANY_SOURCE. all_gather to a list of outputs is slower than to one
//             tensor (all_gather_into_tensor).
// Messages    are launched together, when the program waits for an operation of the group. A wait for another
//             group's operation does not launch them.
// Levels      With "nccl", NCCL itself finds out which ranks share a machine, and how to exchange data.
//             "hierarchical+nccl" decides instead: an all_reduce is one within each machine and, by every
//             rank, one between machines, pipelined (nccl/levels.h). That needs the same number of ranks on
//             every machine. Otherwise, and for the other verbs, it equals "nccl". LOCKSTEP_NODE tells
//             machines apart.
// barrier     makes the hosts wait for each other. It does not wait for streams.
// Bits        of sums are NCCL's, in its order, so they may differ from other backends'. NCCL_*
//             variables reach NCCL unchanged; LOCKSTEP_NCCL is the path of the library.
// Limits      no CUDA graphs; one device per process.
// Throws      InvalidArgument, on all ranks: there is no NCCL, no device, or ranks have different versions of
//             NCCL. DistBackendError quotes an error of NCCL.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

inline constexpr std::string_view NCCL = "nccl";
inline constexpr std::string_view HIERARCHICAL_NCCL = "hierarchical+nccl";

// `backend` is "nccl" or "hierarchical+nccl". CPU memory is served by shm on one machine, and by hierarchical
// on several.
ProcessGroup make_nccl_group(std::string_view backend, Meeting& meeting, const std::string& group_name,
                             const GroupOptions& options, Deadline deadline);
// Makes a group of the ranks of `cpu`, which serves CPU memory from then on as a part of the new group.
// Collective over them. `local_rank` chooses the device.
ProcessGroup make_nccl_group(std::string_view backend, const ProcessGroup& cpu, const std::string& group_name,
                             const GroupOptions& options, int local_rank);
// Name of the group for CPU memory.
std::string cpu_group_name(const std::string& group_name);

}  // namespace lockstep
