// all_reduce: each rank gives a buffer, and gets the element-wise combination of all buffers in place.
//
//   std::vector<float> loss = {local_loss};
//   comm::all_reduce(world, std::span(loss), ReduceOp::AVG);
//
// Collective  every rank of `group`; same count, dtype and op, in the same order of calls.
// Blocks      until the buffer holds the result, unless async_op; see work.h.
// Fails       InvalidArgument, before anything is sent, for an operator that the dtype does not have (like
//             torch): AVG of integers or bool; anything but SUM and AVG of complex numbers; BAND, BOR and
//             BXOR of anything but integers and bool. PeerLost, Mismatch, Timeout and Aborted while waiting;
//             the group is then closed.
// Result      SUM and AVG combine in one balanced binary tree over the ranks: ((0+1)+(2+3)) for four, (0+1)+2
//             for three. So the bits are equal on every rank, in every run and with every backend. float16
//             and bfloat16 accumulate in float32 and are rounded once. AVG divides once. MIN and MAX of
//             floating point give NaN if any rank has one. For bool, SUM and MAX are "or", PRODUCT and MIN
//             are "and". Integers wrap.
// Cost        memory from allocate_shared() is read in place: one pass, no copy. Over shm, private memory is
//             copied in once, and the parts that other ranks reduced are copied out once. Up to 72 bytes
//             travel in one cache line. docs/performance.md has figures.
#pragma once

#include <memory>
#include <span>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

// `data` has `count` elements of `dtype`. `keep_alive` is held until the work is done.
Work all_reduce(const ProcessGroup& group, void* data, std::size_t count, DType dtype, ReduceOp op,
                bool async_op = false, std::shared_ptr<void> keep_alive = nullptr);

template <typename T>
Work all_reduce(const ProcessGroup& group, std::span<T> data, ReduceOp op = ReduceOp::SUM,
                bool async_op = false) {
  return all_reduce(group, data.data(), data.size(), dtype_of<T>(), op, async_op);
}

}  // namespace comm
}  // namespace lockstep
