// all_to_all: each rank has one buffer for every rank, and gets the buffers that the other ranks have for it.
//
//   // counts[r] elements of `out` go to rank r; received[r] elements come from rank r into `in`, in rank
//   // order
//   comm::all_to_all(world, std::span<const float>(out), counts, std::span(in), received);
//
// Collective  every rank of `group`, same dtype. The buffer that rank a has for rank b has the size that b
//             expects from a.
// Blocks      until all outputs are filled, unless async_op.
// Fails       InvalidArgument on this rank: the number of inputs or outputs is not the number of ranks, the
//             sum of the splits is not the buffer's size, or this rank's own input and output differ in size.
//             Mismatch: two ranks disagree about the size of the data between them. Otherwise like
//             all_reduce. Inputs and outputs must not overlap.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/parts.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

struct AllToAllBuffers {
  std::vector<std::span<const std::byte>> inputs;  // [r] goes to rank r
  std::vector<std::span<std::byte>> outputs;       // [r] comes from rank r
};

Work all_to_all(const ProcessGroup& group, DType dtype, AllToAllBuffers buffers, bool async_op = false,
                std::shared_ptr<void> keep_alive = nullptr);

template <typename T>
Work all_to_all(const ProcessGroup& group, const std::vector<std::span<const T>>& inputs,
                const std::vector<std::span<T>>& outputs, bool async_op = false) {
  return all_to_all(group, dtype_of<T>(), {bytes_of(inputs), bytes_of(outputs)}, async_op);
}

// Equal parts: both element counts are multiples of size().
template <typename T>
Work all_to_all(const ProcessGroup& group, std::span<const T> input, std::span<T> output,
                bool async_op = false) {
  const auto ranks = static_cast<std::size_t>(group.size());
  return all_to_all(
      group, dtype_of<T>(),
      {even_parts(group, input, input.size() / ranks), even_parts(group, output, output.size() / ranks)},
      async_op);
}

// Parts with the given numbers of elements, in rank order.
template <typename T>
Work all_to_all(const ProcessGroup& group, std::span<const T> input,
                std::span<const std::size_t> input_splits, std::span<T> output,
                std::span<const std::size_t> output_splits, bool async_op = false) {
  return all_to_all(group, dtype_of<T>(),
                    {split_parts(input, input_splits), split_parts(output, output_splits)}, async_op);
}

}  // namespace comm
}  // namespace lockstep
