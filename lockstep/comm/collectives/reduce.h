// reduce: each rank gives a buffer, and the root gets the element-wise combination of all buffers in place.
//
//   std::vector<double> seconds = {elapsed};
//   comm::reduce(world, std::span(seconds), /*root=*/0, ReduceOp::MAX);
//   if (world.rank() == 0) report(seconds[0]);
//
// Collective  every rank of `group`; same count, dtype, op and root (peer.h), in the same order of calls.
// Blocks      until the root's buffer holds the result, or until this rank's contribution has been read,
//             unless async_op.
// Fails       like all_reduce, and InvalidArgument for a root outside the group.
// Result      the same bits as all_reduce. Only the root's buffer changes (torch leaves the other buffers
//             undefined).
#pragma once

#include <memory>
#include <span>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

struct ReduceOptions {
  Peer root = 0;
  ReduceOp op = ReduceOp::SUM;
  bool async_op = false;
};

// `data` has `count` elements of `dtype`. `keep_alive` is held until the work is done.
Work reduce(const ProcessGroup& group, void* data, std::size_t count, DType dtype,
            const ReduceOptions& options = {}, std::shared_ptr<void> keep_alive = nullptr);

template <typename T>
Work reduce(const ProcessGroup& group, std::span<T> data, Peer root, ReduceOp op = ReduceOp::SUM,
            bool async_op = false) {
  return reduce(group, data.data(), data.size(), dtype_of<T>(),
                {.root = root, .op = op, .async_op = async_op});
}

}  // namespace comm
}  // namespace lockstep
