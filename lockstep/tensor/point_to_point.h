// Messages of tensors between two ranks, with torch.distributed's names, argument order and meaning.
//
//   if (dist::get_rank() == 0) dist::send(x, /*dst=*/1);
//   if (dist::get_rank() == 1) dist::recv(x, /*src=*/0);
//   const int sender = dist::recv(x, std::nullopt);                   // from the rank that sends first
//
//   for (auto& work : dist::batch_isend_irecv({{dist::isend, mine, right}, {dist::irecv, theirs, left}}))
//     work.wait();
//
// Who         the two ranks. A process outside the group logs one warning and returns at once; recv then
//             returns -1.
// src, dst    ranks of the whole job, as in torch. GroupRank{1} is torch's group_src=1 (peer.h). std::nullopt
//             or ANY_SOURCE as src means any rank. recv and Work::source_rank() return that rank as a rank of
//             the whole job.
// tag         >= 0. Messages from one rank to another with one tag arrive in the order sent.
// Tensors     as in collectives.h. Both ends have the same dtype and number of elements (else Mismatch on
//             both).
// Blocks      recv blocks until the message has arrived. send blocks until the tensor may be used again. Over
//             tcp, a message of 64 KiB or more waits for its receiver (comm/collectives/point_to_point.h).
//             isend and irecv return at once; touch their tensors only after wait().
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"

namespace lockstep {

void send(const at::Tensor& tensor, Peer dst, const ProcessGroup& group = world(), int tag = 0);
int recv(const at::Tensor& tensor, Peer src = std::nullopt, const ProcessGroup& group = world(), int tag = 0);
Work isend(const at::Tensor& tensor, Peer dst, const ProcessGroup& group = world(), int tag = 0);
Work irecv(const at::Tensor& tensor, Peer src = std::nullopt, const ProcessGroup& group = world(),
           int tag = 0);

struct P2POp {
  Work (*op)(const at::Tensor&, Peer, const ProcessGroup&, int);  // dist::isend or dist::irecv
  at::Tensor tensor;
  Peer peer;
  ProcessGroup group = world();
  int tag = 0;
};

// Starts all of them and returns one Work for each, in order. All must be of one group.
std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops);

}  // namespace lockstep
