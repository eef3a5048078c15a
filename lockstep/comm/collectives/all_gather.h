// all_gather: every rank gets the buffers of all ranks.
//
//   std::vector<int> everyone(world.size());
//   comm::all_gather(world, std::span<const int>(&mine, 1), std::span(everyone));  // rank r's value at [r]
//
// Collective  every rank of `group`, same dtype. In the form with a list of outputs, ranks may contribute
//             different counts: on every rank, outputs[r] has as many elements as rank r contributes.
// Blocks      until all outputs are filled, unless async_op. An input in memory from allocate_shared() is
//             lent, not copied. The call then also blocks until the other ranks have read it.
// Fails       InvalidArgument on this rank: the number of outputs is not the number of ranks, or this rank's
//             output and input differ in size. Mismatch: a rank contributes another count than an output for
//             it expects. Otherwise like all_reduce.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/parts.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

// `outputs`: one per rank, or a single one, which is cut into equal parts.
Work all_gather(const ProcessGroup& group, const void* input, std::size_t count, DType dtype,
                std::vector<std::span<std::byte>> outputs, bool async_op = false,
                std::shared_ptr<void> keep_alive = nullptr);

// With outputs that may differ in size.
template <typename T>
Work all_gather(const ProcessGroup& group, std::span<const T> input, const std::vector<std::span<T>>& outputs,
                bool async_op = false) {
  std::vector<std::span<std::byte>> bytes;
  for (const auto& output : outputs) bytes.push_back(std::as_writable_bytes(output));
  return all_gather(group, input.data(), input.size(), dtype_of<T>(), std::move(bytes), async_op);
}

// With one output of size() * input.size() elements, in rank order.
template <typename T>
Work all_gather(const ProcessGroup& group, std::span<const T> input, std::span<T> output,
                bool async_op = false) {
  return all_gather(group, input.data(), input.size(), dtype_of<T>(), whole(group, output, input.size()),
                    async_op);
}

}  // namespace comm
}  // namespace lockstep
