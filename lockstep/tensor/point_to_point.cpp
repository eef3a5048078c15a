#include "lockstep/tensor/point_to_point.h"

#include "lockstep/comm/collectives.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep {

Work isend(const at::Tensor& tensor, Peer dst, const ProcessGroup& group, int tag) {
  TensorCall call("isend", group);
  if (!call.is_member()) return {};
  const int peer = dst.in(group, "isend", "dst");
  const TensorBuffer& x = call.read(tensor);
  return call.finish(comm::isend(call.group(), x.data(), x.count(), x.dtype, peer, tag, call.keep()),
                     /*async_op=*/true);
}

Work irecv(const at::Tensor& tensor, Peer src, const ProcessGroup& group, int tag) {
  TensorCall call("irecv", group);
  if (!call.is_member()) return {};
  const int peer = src.is_any() ? ANY_SOURCE : src.in(group, "irecv", "src");
  const TensorBuffer& x = call.write(tensor);
  return call.finish(comm::irecv(call.group(), x.data(), x.count(), x.dtype, peer, tag, call.keep()),
                     /*async_op=*/true);
}

void send(const at::Tensor& tensor, Peer dst, const ProcessGroup& group, int tag) {
  TensorCall call("send", group);
  if (!call.is_member()) return;
  const int peer = dst.in(group, "send", "dst");
  const TensorBuffer& x = call.read(tensor);
  comm::send(call.group(), x.data(), x.count(), x.dtype, peer, tag, call.keep());
}

int recv(const at::Tensor& tensor, Peer src, const ProcessGroup& group, int tag) {
  TensorCall call("recv", group);
  if (!call.is_member()) return -1;
  const int peer = src.is_any() ? ANY_SOURCE : src.in(group, "recv", "src");
  const TensorBuffer& x = call.write(tensor);
  const int source = comm::recv(call.group(), x.data(), x.count(), x.dtype, peer, tag, call.keep());
  call.finish(Work(), /*async_op=*/false);
  return group.ranks()[static_cast<std::size_t>(source)];
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
