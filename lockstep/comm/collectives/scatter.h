// scatter: each rank gets its part of the root's data.
//
//   std::vector<int> mine(10);
//   comm::scatter(world, std::span(mine), std::span<const int>(all), /*root=*/0);  // rank r gets
//                                                                                  // all[10 * r ...]
//
// Collective  every rank of `group`, same dtype and root (peer.h). Only the root gives inputs (like torch).
//             In the form with a list of inputs, ranks may expect different counts.
// Blocks      until `output` is filled, unless async_op. The root does not wait for the other ranks.
// Fails       InvalidArgument on this rank: a rank other than the root gives inputs, the number of the root's
//             inputs is not the number of ranks, or the root's own input and output differ in size. Mismatch:
//             a rank expects another count than the root has for it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/parts.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

struct ScatterOptions {
  Peer root = 0;
  bool async_op = false;
};

Work scatter(const ProcessGroup& group, Destination output, std::vector<std::span<const std::byte>> inputs,
             const ScatterOptions& options, std::shared_ptr<void> keep_alive = nullptr);

// With inputs that may differ in size; the list is empty on ranks other than the root.
template <typename T>
Work scatter(const ProcessGroup& group, std::span<T> output, const std::vector<std::span<const T>>& inputs,
             Peer root, bool async_op = false) {
  return scatter(group, destination(output), bytes_of(inputs), {.root = root, .async_op = async_op});
}

// With one input of size() * output.size() elements in rank order on the root; empty elsewhere.
template <typename T>
Work scatter(const ProcessGroup& group, std::span<T> output, std::span<const T> input, Peer root,
             bool async_op = false) {
  return scatter(group, destination(output), even_parts(group, input, output.size()),
                 {.root = root, .async_op = async_op});
}

}  // namespace comm
}  // namespace lockstep
