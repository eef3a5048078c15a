// gather: the root gets the buffers of all ranks.
//
//   std::vector<int> everyone(world.rank() == 0 ? world.size() : 0);
//   // rank r's value at [r]
//   comm::gather(world, std::span<const int>(&mine, 1), std::span(everyone), /*root=*/0);
//
// Collective  every rank of `group`, same dtype and root (peer.h). Only the root gives outputs (like torch).
//             In the form with a list of outputs, ranks may contribute different counts.
// Blocks      until the root's outputs are filled, or until this rank's contribution has been read, unless
//             async_op.
// Fails       InvalidArgument on this rank: a rank other than the root gives outputs, the number of the
//             root's outputs is not the number of ranks, or the root's own output and input differ in size.
//             Mismatch: a rank contributes another count than the root expects.
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

struct GatherOptions {
  Peer root = 0;
  bool async_op = false;
};

Work gather(const ProcessGroup& group, Contribution input, std::vector<std::span<std::byte>> outputs,
            const GatherOptions& options, std::shared_ptr<void> keep_alive = nullptr);

// With outputs that may differ in size; the list is empty on ranks other than the root.
template <typename T>
Work gather(const ProcessGroup& group, std::span<const T> input, const std::vector<std::span<T>>& outputs,
            Peer root, bool async_op = false) {
  return gather(group, contribution(input), bytes_of(outputs), {.root = root, .async_op = async_op});
}

// With one output of size() * input.size() elements in rank order on the root; empty elsewhere.
template <typename T>
Work gather(const ProcessGroup& group, std::span<const T> input, std::span<T> output, Peer root,
            bool async_op = false) {
  return gather(group, contribution(input), even_parts(group, output, input.size()),
                {.root = root, .async_op = async_op});
}

}  // namespace comm
}  // namespace lockstep
