// Messages that wait until their receiver asks for them.
//
//   send_when_asked(part, GroupRank{0}, group);      // the sender, for each of its tensors
//
//   ask_for_next(GroupRank{1}, group);               // rank 0, for each tensor that it will receive
//   recv(place, GroupRank{1}, group);
//
// Why     send() may return before the receiver comes: the data then wait in group memory, or in a socket. A
//         sender of many tensors would so put all of them beside what the receiver holds. A sender that is
//         asked has one under way.
// Order   The tensors of one sender come in the order of its calls. The receiver asks for one more before it
//         receives the last one asked for, so that the next is under way while it works on this one.
// Blocks  send_when_asked() until it is asked. ask_for_next() does not: it sends one byte.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

void send_when_asked(const at::Tensor& tensor, GroupRank receiver, const ProcessGroup& group);
void ask_for_next(GroupRank sender, const ProcessGroup& group);

}  // namespace lockstep
