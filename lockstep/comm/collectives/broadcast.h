// broadcast: every rank gets the root's buffer.
//
//   comm::broadcast(world, std::span(weights), /*root=*/0);       // a rank of the job; GroupRank{0} is a
//                                                                 // rank of the group (peer.h)
//
// Collective  every rank of `group`; same count, dtype and root, in the same order of calls.
// Blocks      until the buffer holds the root's data, unless async_op. The root waits for the other ranks in
//             two cases: its buffer is memory from allocate_shared(), which it lends them, or it is larger
//             than 1 MiB (`window` in LOCKSTEP_PATHS).
// Fails       InvalidArgument on this rank for a root outside the group; otherwise like all_reduce.
// Cost        the root copies in while the other ranks copy out. Memory from allocate_shared() is copied
//             neither in nor out. If all ranks' buffers are such memory, every rank that has called copies a
//             part.
#pragma once

#include <memory>
#include <span>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

Work broadcast(const ProcessGroup& group, void* data, std::size_t count, DType dtype, Peer root,
               bool async_op = false, std::shared_ptr<void> keep_alive = nullptr);

template <typename T>
Work broadcast(const ProcessGroup& group, std::span<T> data, Peer root = 0, bool async_op = false) {
  return broadcast(group, data.data(), data.size(), dtype_of<T>(), root, async_op);
}

}  // namespace comm
}  // namespace lockstep
