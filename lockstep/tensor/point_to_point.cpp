#include "lockstep/tensor/point_to_point.h"

#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep {
namespace {

// Refuses a number that is not a rank of the group, and names the call.
Peer source(Peer src, const ProcessGroup& group, const char* verb) {
  if (src.is_any()) return src;
  return GroupRank{src.in(group, verb, "src")};
}

}  // namespace

Work isend(const at::Tensor& tensor, Peer dst, const ProcessGroup& group, int tag) {
  TensorCall call("isend", group);
  if (!call.is_member()) return {};
  const GroupRank peer = {dst.in(group, "isend", "dst")};
  const TensorBuffer& x = call.read(tensor);
  return call.finish(comm::isend(call.group(), x.data(), x.count(), x.dtype, peer, tag, call.keep()),
                     /*async_op=*/true);
}

Work irecv(const at::Tensor& tensor, Peer src, const ProcessGroup& group, int tag) {
  TensorCall call("irecv", group);
  if (!call.is_member()) return {};
  const Peer peer = source(src, group, "irecv");
  const TensorBuffer& x = call.write(tensor);
  return call.finish(comm::irecv(call.group(), x.data(), x.count(), x.dtype, peer, tag, call.keep()),
                     /*async_op=*/true);
}

void send(const at::Tensor& tensor, Peer dst, const ProcessGroup& group, int tag) {
  TensorCall call("send", group);
  if (!call.is_member()) return;
  const GroupRank peer = {dst.in(group, "send", "dst")};
  const TensorBuffer& x = call.read(tensor);
  comm::send(call.group(), x.data(), x.count(), x.dtype, peer, tag, call.keep());
}

int recv(const at::Tensor& tensor, Peer src, const ProcessGroup& group, int tag) {
  TensorCall call("recv", group);
  if (!call.is_member()) return -1;
  const Peer peer = source(src, group, "recv");
  const TensorBuffer& x = call.write(tensor);
  const int sender = comm::recv(call.group(), x.data(), x.count(), x.dtype, peer, tag, call.keep());
  call.finish(Work(), /*async_op=*/false);
  return sender;
}

std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops) {
  if (ops.empty()) throw InvalidArgument("batch_isend_irecv: the list of operations is empty");
  for (const P2POp& op : ops) {
    const TensorCall call("batch_isend_irecv", op.group);
    if (op.op != &isend && op.op != &irecv) call.refuse("each operation must be dist::isend or dist::irecv");
    const bool same_backend = op.group.is_member() == ops[0].group.is_member() &&
                              (!op.group.is_member() || &op.group.backend() == &ops[0].group.backend());
    if (!same_backend) call.refuse("all operations must be of one group, the first is of another");
  }
  std::vector<Work> works;
  works.reserve(ops.size());
  for (const P2POp& op : ops) works.push_back(op.op(op.tensor, op.peer, op.group, op.tag));
  return works;
}

}  // namespace lockstep
