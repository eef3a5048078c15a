#include "lockstep/tensor/collectives.h"

#include <ATen/ATen.h>

#include <utility>

#include "lockstep/base/shape_bytes.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/tensor/sparse_all_reduce.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep {

Work broadcast(const at::Tensor& tensor, Peer src, const ProcessGroup& group, bool async_op) {
  TensorCall call("broadcast", group);
  if (!call.is_member()) return {};
  const int root = src.in(group, "broadcast", "src");
  const TensorBuffer& x = call.write(tensor);
  return call.finish(
      comm::broadcast(call.group(), x.data(), x.count(), x.dtype, GroupRank{root}, async_op, call.keep()),
      async_op);
}

Work all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group, bool async_op) {
  TensorCall call("all_reduce", group);
  if (!call.is_member()) return {};
  if (tensor.defined() && tensor.layout() == at::kSparse) {
    sparse_all_reduce(tensor, op, group);
    return {};
  }
  const TensorBuffer& x = call.write(tensor);
  return call.finish(comm::all_reduce(call.group(), x.data(), x.count(), x.dtype, op, async_op, call.keep()),
                     async_op);
}

Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, ReduceOp op, const ProcessGroup& group,
                          bool async_op) {
  TensorCall call("all_reduce_coalesced", group);
  if (!call.is_member()) return {};
  if (tensors.empty()) call.refuse("the list of tensors is empty");
  const TensorBuffer flat = call.write_flat(tensors);
  return call.finish(
      comm::all_reduce(call.group(), flat.data(), flat.count(), flat.dtype, op, async_op, call.keep()),
      async_op);
}

Work reduce(const at::Tensor& tensor, Peer dst, ReduceOp op, const ProcessGroup& group, bool async_op) {
  TensorCall call("reduce", group);
  if (!call.is_member()) return {};
  const int root = dst.in(group, "reduce", "dst");
  const TensorBuffer& x = root == group.rank() ? call.write(tensor) : call.read(tensor);
  return call.finish(comm::reduce(call.group(), x.data(), x.count(), x.dtype,
                                  {.root = GroupRank{root}, .op = op, .async_op = async_op}, call.keep()),
                     async_op);
}

Work all_gather(const std::vector<at::Tensor>& tensor_list, const at::Tensor& tensor,
                const ProcessGroup& group, bool async_op) {
  TensorCall call("all_gather", group);
  if (!call.is_member()) return {};
  call.expect_one_per_rank("tensor_list", tensor_list.size());
  const TensorBuffer& x = call.read(tensor);
  auto outputs = call.write_all(tensor_list, x.dtype);
  return call.finish(
      comm::all_gather(call.group(), x.data(), x.count(), x.dtype, std::move(outputs), async_op, call.keep()),
      async_op);
}

Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                            bool async_op) {
  TensorCall call("all_gather_into_tensor", group);
  if (!call.is_member()) return {};
  const TensorBuffer& x = call.read(input);
  const TensorBuffer& whole = call.write(output);
  call.expect_whole(whole, "output", x);
  return call.finish(
      comm::all_gather(call.group(), x.data(), x.count(), x.dtype, {whole.bytes()}, async_op, call.keep()),
      async_op);
}

Work barrier(const ProcessGroup& group, bool async_op) {
  const TensorCall call("barrier", group);
  return call.is_member() ? comm::barrier(group, async_op) : Work();
}

DType dtype_of(at::ScalarType type) {
  if (const auto dtype = carried_dtype(type)) return *dtype;
  throw InvalidArgument(lockstep::str("collectives do not carry tensors of dtype ", c10::toString(type)));
}

at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype, const ProcessGroup& group) {
  const auto bytes = shape_bytes({sizes.data(), sizes.size()}, c10::elementSize(dtype));
  if (!bytes)
    throw InvalidArgument(lockstep::str("shared_empty: sizes ", sizes, " are negative or too large"));
  std::shared_ptr<void> memory = group.allocate_shared(*bytes);
  return at::from_blob(
      memory.get(), sizes, [memory](void*) {}, at::TensorOptions(dtype));
}

}  // namespace lockstep
