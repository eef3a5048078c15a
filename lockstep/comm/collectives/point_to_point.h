// send, recv, isend, irecv: one message from one rank to another.
//
//   if (world.rank() == 0) comm::send(world, std::span<const float>(x), /*destination=*/1);
//   if (world.rank() == 1) comm::recv(world, std::span(x), /*source=*/0);
//
// Who         the two ranks; others take no part. Messages from one rank to another with one tag arrive in
//             the order sent. Messages with different tags may be received in any order. As in torch, a tag
//             is not negative and a rank sends nothing to itself.
// Ranks       of the whole job, or GroupRank{1}: of the group (peer.h). The rank that recv and
//             Work::source_rank() return is one of the job.
// Source      ANY_SOURCE receives from the rank that sends first, and the answer is that rank. A message
//             goes to the first receive, in the order of calls, that matches it (as MPI).
// Blocks      recv blocks until the message is here. send returns when its buffer may be reused. Whether
//             send waits for the receiver depends on the backend, so two ranks that both send first may wait
//             for each other: over shared memory when 32 messages to a rank are unreceived, over tcp when a
//             message has more than 64 KiB or 1 MiB is unreceived. isend and irecv return a Work.
// Fails       InvalidArgument here. Mismatch on both ranks when dtype or count differ. PeerLost when the
//             peer is gone and has not sent the message. The group is then closed.
#pragma once

#include <memory>
#include <span>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

Work isend(const ProcessGroup& group, const void* data, std::size_t count, DType dtype, Peer destination,
           int tag = 0, std::shared_ptr<void> keep_alive = nullptr);
// As isend(...).wait(). The backend knows that the caller waits, so a large message need not be copied aside.
void send(const ProcessGroup& group, const void* data, std::size_t count, DType dtype, Peer destination,
          int tag = 0, std::shared_ptr<void> keep_alive = nullptr);
Work irecv(const ProcessGroup& group, void* data, std::size_t count, DType dtype, Peer source, int tag = 0,
           std::shared_ptr<void> keep_alive = nullptr);
// As irecv(...).wait(). Returns the rank the message came from; -1 in a process outside the group.
int recv(const ProcessGroup& group, void* data, std::size_t count, DType dtype, Peer source, int tag = 0,
         std::shared_ptr<void> keep_alive = nullptr);

template <typename T>
Work isend(const ProcessGroup& group, std::span<const T> data, Peer destination, int tag = 0) {
  return isend(group, data.data(), data.size(), dtype_of<T>(), destination, tag);
}
template <typename T> Work irecv(const ProcessGroup& group, std::span<T> data, Peer source, int tag = 0) {
  return irecv(group, data.data(), data.size(), dtype_of<T>(), source, tag);
}
template <typename T>
void send(const ProcessGroup& group, std::span<const T> data, Peer destination, int tag = 0) {
  send(group, data.data(), data.size(), dtype_of<T>(), destination, tag);
}
template <typename T> int recv(const ProcessGroup& group, std::span<T> data, Peer source, int tag = 0) {
  return recv(group, data.data(), data.size(), dtype_of<T>(), source, tag);
}

}  // namespace comm
}  // namespace lockstep
