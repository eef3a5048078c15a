// The collectives in which ranks hold different parts: gather, scatter and those made of them.
#include <ATen/ATen.h>

#include <numeric>

#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep {
namespace {

void expect_list(const TensorCall& call, const char* name, std::size_t length, bool is_root, const char* role,
                 int ranks) {
  if (is_root && length != static_cast<std::size_t>(ranks))
    call.refuse(name, " must be given on the ", role, " rank with one tensor per rank: ", ranks, ", not ",
                length);
  if (!is_root && length != 0) call.refuse(name, " must not be given on a rank that is not the ", role);
}

// Cuts `whole` along dimension 0 into `splits` rows for each rank, or into equal parts if there are no
// splits.
template <typename Bytes>
std::vector<Bytes> split_rows(const TensorCall& call, const TensorBuffer& whole, const char* name,
                              const std::vector<std::int64_t>& splits, int ranks) {
  const auto bytes = Bytes(whole.bytes());
  const at::Tensor& tensor = whole.original;
  const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (tensor.dim() == 0) call.refuse("the ", name, " tensor has no dimension 0 to split");
  if (splits.empty()) {
    if (rows % ranks != 0)
      call.refuse("dimension 0 of the ", name, " tensor (", rows, ") does not divide equally among ", ranks,
                  " ranks; pass split sizes");
    return equal_parts(bytes, ranks);
  }
  call.expect_one_per_rank(name, splits.size());
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) call.refuse("a split size of the ", name, " tensor is negative: ", split);
    sum += split;
  }
  if (sum != rows)
    call.refuse("the split sizes of the ", name, " tensor add up to ", sum, ", its dimension 0 is ", rows);
  const std::size_t row = rows == 0 ? 0 : bytes.size() / static_cast<std::size_t>(rows);
  std::vector<Bytes> parts;
  std::size_t at = 0;
  for (const std::int64_t split : splits) {
    parts.push_back(bytes.subspan(at, static_cast<std::size_t>(split) * row));
    at += static_cast<std::size_t>(split) * row;
  }
  return parts;
}

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

}  // namespace

Work gather(const at::Tensor& tensor, const std::vector<at::Tensor>& gather_list, Peer dst,
            const ProcessGroup& group, bool async_op) {
  TensorCall call("gather", group);
  if (!call.is_member()) return {};
  const int root = dst.in(group, "gather", "dst");
  expect_list(call, "gather_list", gather_list.size(), root == group.rank(), "destination", group.size());
  const TensorBuffer& x = call.read(tensor);
  auto outputs = call.write_all(gather_list, x.dtype);
  return call.finish(comm::gather(call.group(), {x.data(), x.count(), x.dtype}, std::move(outputs),
                                  {.root = GroupRank{root}, .async_op = async_op}, call.keep()),
                     async_op);
}

Work scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& scatter_list, Peer src,
             const ProcessGroup& group, bool async_op) {
  TensorCall call("scatter", group);
  if (!call.is_member()) return {};
  const int root = src.in(group, "scatter", "src");
  expect_list(call, "scatter_list", scatter_list.size(), root == group.rank(), "source", group.size());
  const TensorBuffer& x = call.write(tensor);
  auto inputs = call.read_all(scatter_list, x.dtype);
  return call.finish(comm::scatter(call.group(), {x.data(), x.count(), x.dtype}, std::move(inputs),
                                   {.root = GroupRank{root}, .async_op = async_op}, call.keep()),
                     async_op);
}

Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& input_list, ReduceOp op,
                    const ProcessGroup& group, bool async_op) {
  TensorCall call("reduce_scatter", group);
  if (!call.is_member()) return {};
  call.expect_one_per_rank("input_list", input_list.size());
  const TensorBuffer& x = call.write(output);
  auto inputs = call.read_all(input_list, x.dtype);
  return call.finish(comm::reduce_scatter(call.group(), {x.data(), x.count(), x.dtype}, std::move(inputs), op,
                                          async_op, call.keep()),
                     async_op);
}

Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                           const ProcessGroup& group, bool async_op) {
  TensorCall call("reduce_scatter_tensor", group);
  if (!call.is_member()) return {};
  const TensorBuffer& x = call.write(output);
  const TensorBuffer& whole = call.read(input);
  call.expect_whole(whole, "input", x);
  return call.finish(comm::reduce_scatter(call.group(), {x.data(), x.count(), x.dtype},
                                          {ConstBytes(whole.bytes())}, op, async_op, call.keep()),
                     async_op);
}

Work all_to_all(const std::vector<at::Tensor>& output_tensor_list,
                const std::vector<at::Tensor>& input_tensor_list, const ProcessGroup& group, bool async_op) {
  TensorCall call("all_to_all", group);
  if (!call.is_member()) return {};
  call.expect_one_per_rank("output_tensor_list", output_tensor_list.size());
  call.expect_one_per_rank("input_tensor_list", input_tensor_list.size());
  const DType dtype = call.dtype_of_first(input_tensor_list);
  auto inputs = call.read_all(input_tensor_list, dtype);
  auto outputs = call.write_all(output_tensor_list, dtype);
  return call.finish(
      comm::all_to_all(call.group(), dtype, {std::move(inputs), std::move(outputs)}, async_op, call.keep()),
      async_op);
}

Work all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& output_split_sizes,
                       const std::vector<std::int64_t>& input_split_sizes, const ProcessGroup& group,
                       bool async_op) {
  TensorCall call("all_to_all_single", group);
  if (!call.is_member()) return {};
  const TensorBuffer& from = call.read(input);
  const TensorBuffer& to = call.write(output);
  call.expect_dtype(to, from.dtype, "the output");
  auto inputs = split_rows<ConstBytes>(call, from, "input", input_split_sizes, group.size());
  auto outputs = split_rows<Bytes>(call, to, "output", output_split_sizes, group.size());
  return call.finish(comm::all_to_all(call.group(), from.dtype, {std::move(inputs), std::move(outputs)},
                                      async_op, call.keep()),
                     async_op);
}

}  // namespace lockstep
