// reduce_scatter: each rank gives one buffer for every rank, and gets the combination of all buffers for
// itself.
//
//   std::vector<float> mine(gradients.size() / world.size());
//   comm::reduce_scatter(world, std::span(mine), std::span<const float>(gradients), ReduceOp::AVG);
//
// Collective  every rank of `group`, same dtype and op. In the form with a list of inputs, the parts may
//             differ in size: on every rank, inputs[r] has as many elements as rank r's output.
// Blocks      until `output` holds the result, unless async_op. Inputs in memory from allocate_shared() are
//             lent, not copied. The call then also blocks until the other ranks have read their parts.
// Fails       like all_reduce. Also InvalidArgument on this rank: the number of inputs is not the number of
//             ranks, or its own input and its output differ in size. Mismatch if ranks have parts of
//             different sizes for one rank.
// Result      the same bits as an all_reduce of the same buffers. `output` may lie inside this rank's inputs:
//             as its own part or, at the cost of a copy, anywhere.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/parts.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

// `inputs`: one per rank, or a single one, which is cut into equal parts.
Work reduce_scatter(const ProcessGroup& group, Destination output,
                    std::vector<std::span<const std::byte>> inputs, ReduceOp op, bool async_op = false,
                    std::shared_ptr<void> keep_alive = nullptr);

// With inputs that may differ in size.
template <typename T>
Work reduce_scatter(const ProcessGroup& group, std::span<T> output,
                    const std::vector<std::span<const T>>& inputs, ReduceOp op = ReduceOp::SUM,
                    bool async_op = false) {
  return reduce_scatter(group, destination(output), bytes_of(inputs), op, async_op);
}

// With one input of size() * output.size() elements, in rank order.
template <typename T>
Work reduce_scatter(const ProcessGroup& group, std::span<T> output, std::span<const T> input,
                    ReduceOp op = ReduceOp::SUM, bool async_op = false) {
  return reduce_scatter(group, destination(output), whole(group, input, output.size()), op, async_op);
}

}  // namespace comm
}  // namespace lockstep
