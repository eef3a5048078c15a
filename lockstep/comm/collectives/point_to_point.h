// send, recv, isend, irecv: one message from one rank to another.
//
//   if (world.rank() == 0) comm::send(world, std::span<const float>(x), /*destination=*/1);
//   if (world.rank() == 1) comm::recv(world, std::span(x), /*source=*/0);
//
// Who         the sender and the receiver only. Messages from one rank to another with one tag arrive in the
//             order in which they were sent. Messages with different tags may be received in any order. Like
//             in torch, a tag is not negative, and a rank cannot send to itself.
// Ranks       ranks of the job, or GroupRank{1} for a rank of the group (peer.h). recv and
//             Work::source_rank() return a rank of the job.
// Source      ANY_SOURCE receives from the rank that sends first, and returns that rank. A message goes to
//             the first matching receive, in the order of the calls (like MPI).
// Blocks      recv blocks until the message has arrived. send returns when its buffer may be reused. Whether
//             send waits for the receiver depends on the backend. Over shared memory it waits if 32 messages
//             to a rank are unreceived; over tcp if a message has more than 64 KiB, or if 1 MiB is
//             unreceived. So two ranks that both send first may wait for each other. isend and irecv return a
//             Work.
// Fails       InvalidArgument on this rank. Mismatch on both ranks if dtype or count differ. PeerLost if the
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
// Like isend(...).wait(). The backend knows that the caller waits, so it need not copy a large message.
void send(const ProcessGroup& group, const void* data, std::size_t count, DType dtype, Peer destination,
          int tag = 0, std::shared_ptr<void> keep_alive = nullptr);
Work irecv(const ProcessGroup& group, void* data, std::size_t count, DType dtype, Peer source, int tag = 0,
           std::shared_ptr<void> keep_alive = nullptr);
// Like irecv(...).wait(). Returns the rank that sent the message; -1 in a process outside the group.
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
