// all_gather: every rank gets every rank's buffer.
//
//   std::vector<int> everyone(world.size());
//   comm::all_gather(world, std::span<const int>(&mine, 1), std::span(everyone));  // rank r's value at [r]
//
// Collective  every rank of `group`, same dtype. In the form with a list of outputs, ranks may contribute
//             different counts: outputs[r] has as many elements as rank r contributes, on every rank.
// Blocks      until all outputs are filled, unless async_op. An input in memory from allocate_shared() is
//             lent, not copied: then the call also blocks until the other ranks have read it.
// Fails       InvalidArgument here: there is not one output per rank, or this rank's output and input differ
//             in size. Mismatch: a rank contributes another count than an output for it expects. Otherwise
//             as all_reduce.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/parts.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

// `outputs`: one per rank, or a single one that is cut into equal parts.
Work all_gather(const ProcessGroup& group, const void* input, std::size_t count, DType dtype,
                std::vector<std::span<std::byte>> outputs, bool async_op = false,
                std::shared_ptr<void> keep_alive = nullptr);

// Outputs that may differ in size.
template <typename T>
Work all_gather(const ProcessGroup& group, std::span<const T> input, const std::vector<std::span<T>>& outputs,
                bool async_op = false) {
  std::vector<std::span<std::byte>> bytes;
  for (const auto& output : outputs) bytes.push_back(std::as_writable_bytes(output));
  return all_gather(group, input.data(), input.size(), dtype_of<T>(), std::move(bytes), async_op);
}

// One output of size() * input.size() elements, in rank order.
template <typename T>
Work all_gather(const ProcessGroup& group, std::span<const T> input, std::span<T> output,
                bool async_op = false) {
  return all_gather(group, input.data(), input.size(), dtype_of<T>(), whole(group, output, input.size()),
                    async_op);
}

}  // namespace comm
}  // namespace lockstep
