// reduce_scatter: each rank gives one buffer for every rank; each rank gets the combination of the buffers
// meant for it.
//
//   std::vector<float> mine(gradients.size() / world.size());
//   comm::reduce_scatter(world, std::span(mine), std::span<const float>(gradients), ReduceOp::AVG);
//
// Collective  every rank of `group`, same dtype and op. The parts may differ in size from rank to rank in the
//             form with a list of inputs: inputs[r] has as many elements on every rank as rank r's output.
// Blocks      until `output` holds the result, unless async_op. Inputs in memory from allocate_shared() are
//             lent, not copied: then also until the others have taken what is theirs.
// Fails       as all_reduce, and InvalidArgument here: not one input per rank, or an own input of another
//             size than the output. Mismatch when ranks have parts of different sizes for one rank.
// Result      the bits that all_reduce of the same buffers gives. `output` may lie inside this rank's inputs:
//             as its own part, or, for the price of a copy, anywhere.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/parts.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

// `inputs`: one per rank, or a single one that is cut into equal parts.
Work reduce_scatter(const ProcessGroup& group, Destination output,
                    std::vector<std::span<const std::byte>> inputs, ReduceOp op, bool async_op = false,
                    std::shared_ptr<void> keep_alive = nullptr);

// Inputs that may differ in size.
template <typename T>
Work reduce_scatter(const ProcessGroup& group, std::span<T> output,
                    const std::vector<std::span<const T>>& inputs, ReduceOp op = ReduceOp::SUM,
                    bool async_op = false) {
  return reduce_scatter(group, destination(output), bytes_of(inputs), op, async_op);
}

// One input of size() * output.size() elements, in rank order.
template <typename T>
Work reduce_scatter(const ProcessGroup& group, std::span<T> output, std::span<const T> input,
                    ReduceOp op = ReduceOp::SUM, bool async_op = false) {
  return reduce_scatter(group, destination(output), whole(group, input, output.size()), op, async_op);
}

}  // namespace comm
}  // namespace lockstep
