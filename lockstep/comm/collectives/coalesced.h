// all_reduce_coalesced: reduces several buffers by one all_reduce. batch_isend_irecv: starts several messages
// at once.
//
//   comm::all_reduce_coalesced(world, std::vector<std::span<float>>{weights, biases}, ReduceOp::AVG);
//
//   std::vector<Work> works =
//       comm::batch_isend_irecv(world, {comm::send_op(mine, next), comm::recv_op(theirs, before)});
//   for (Work& work : works) work.wait();
//
// Contract    all_reduce.h and point_to_point.h. All arguments are checked before anything is started.
// Cost        one copy in and one out. With async_op, wait() or is_completed() copies out: if the Work is
//             dropped before, the buffers do not change.
#pragma once

#include <span>
#include <vector>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

// All buffers have `dtype`. Their sizes may differ, but must be the same on every rank.
Work all_reduce_coalesced(const ProcessGroup& group, std::vector<std::span<std::byte>> buffers, DType dtype,
                          ReduceOp op = ReduceOp::SUM, bool async_op = false);

template <typename T>
Work all_reduce_coalesced(const ProcessGroup& group, const std::vector<std::span<T>>& buffers,
                          ReduceOp op = ReduceOp::SUM, bool async_op = false) {
  std::vector<std::span<std::byte>> bytes;
  for (const auto& buffer : buffers) bytes.push_back(std::as_writable_bytes(buffer));
  return all_reduce_coalesced(group, std::move(bytes), dtype_of<T>(), op, async_op);
}

struct P2POp {
  Verb verb = Verb::SEND;  // or RECV
  void* data = nullptr;    // a SEND only reads
  std::size_t count = 0;
  DType dtype = DType::UINT8;
  Peer peer = 0;
  int tag = 0;
};

template <typename T> P2POp send_op(std::span<const T> data, Peer destination, int tag = 0) {
  return {Verb::SEND, const_cast<T*>(data.data()), data.size(), dtype_of<T>(), destination, tag};
}
template <typename T> P2POp recv_op(std::span<T> data, Peer source, int tag = 0) {
  return {Verb::RECV, data.data(), data.size(), dtype_of<T>(), source, tag};
}

// One Work per entry, in order.
std::vector<Work> batch_isend_irecv(const ProcessGroup& group, const std::vector<P2POp>& ops);

}  // namespace lockstep::comm
