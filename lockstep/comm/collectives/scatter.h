// scatter: each rank gets its part of what the root has.
//
//   std::vector<int> mine(10);
//   comm::scatter(world, std::span(mine), std::span<const int>(all), /*root=*/0);  // all[10 * r ... ] goes
//                                                                                  // to rank r
//
// Collective  every rank of `group`, same dtype and root (peer.h). The root gives inputs, and no other rank
//             does (as torch). In the form with a list of inputs, ranks may expect different counts.
// Blocks      until `output` is filled, unless async_op. The root does not wait for the others.
// Fails       InvalidArgument here: another rank than the root gives inputs, the root does not give one per
//             rank, or the root's own input and output differ in size. Mismatch: a rank expects another
//             count than the root has for it.
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

// Inputs that may differ in size; empty on other ranks than the root.
template <typename T>
Work scatter(const ProcessGroup& group, std::span<T> output, const std::vector<std::span<const T>>& inputs,
             Peer root, bool async_op = false) {
  return scatter(group, destination(output), bytes_of(inputs), {.root = root, .async_op = async_op});
}

// One input of size() * output.size() elements in rank order on the root, empty elsewhere.
template <typename T>
Work scatter(const ProcessGroup& group, std::span<T> output, std::span<const T> input, Peer root,
             bool async_op = false) {
  return scatter(group, destination(output), even_parts(group, input, output.size()),
                 {.root = root, .async_op = async_op});
}

}  // namespace comm
}  // namespace lockstep
