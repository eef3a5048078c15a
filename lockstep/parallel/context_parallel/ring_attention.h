// Ring attention: attention over a sequence of which each rank of a context-parallel group holds a part. No
// rank ever holds the whole sequence, so n ranks take sequences n times as long.
//
//   namespace cp = dist::context_parallel;
//   const at::Tensor own = cp::sequence_part(tokens, /*dim=*/1, group);      // this rank's chunks
//   at::Tensor y = cp::ring_attention(query, key, value, group, {.is_causal = true});
//   const at::Tensor whole = cp::sequence_whole(y, /*dim=*/2, group);        // to look at, not for training
//
// Parts       Each rank has two chunks of the sequence, an early and a late one, one behind the other
//             (sequence_chunks.h). So all ranks have the same work under a causal mask, half of the
//             whole. sequence_part() takes them out of any tensor: tokens, targets, positions.
// Exact       not an approximation. Keys and values travel round the ring. A rank attends to one block
//             after the other, and merges the results by the logarithms of their sums of exponentials. In
//             backward they travel once more, and with them the sums of their gradients.
// Overlap     The next block travels while a rank computes with the one it has.
// Memory      own queries, keys, values and output, and two blocks of keys and values.
// Heads       query [batch, heads, own sequence, size]; key and value may have fewer heads, which divide
//             them.
// Collective  every rank of the group, in forward and in backward, with the same shapes. In a group of
//             one rank nothing is exchanged.
// Fails       InvalidArgument: shapes that do not go together; own sequences of odd length; a length that
//             twice the number of ranks does not divide; another device than the CPU;
//             backward(create_graph = true). PeerLost, Timeout as send() and recv().
// Source      Liu et al., 2023, arXiv 2310.01889; Dao, 2023, arXiv 2307.08691 (the merge and its
//             backward).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/comm/process_group.h"

namespace lockstep::context_parallel {

struct RingAttentionOptions {
  bool is_causal = false;
  std::optional<double> scale = {};  // default: 1 / sqrt(size)
};

at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const ProcessGroup& group, const RingAttentionOptions& options = {});

// This rank's chunks of a sequence along `dim`. Gradients flow back to them alone. Exchanges nothing.
at::Tensor sequence_part(const at::Tensor& whole, std::int64_t dim, const ProcessGroup& group);
// The whole of all ranks' parts, in the order of the sequence, without gradients. Collective.
at::Tensor sequence_whole(const at::Tensor& part, std::int64_t dim, const ProcessGroup& group);

}  // namespace lockstep::context_parallel
