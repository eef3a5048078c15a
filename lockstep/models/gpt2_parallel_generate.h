// What the ranks of one GPT-2 do together for the next token: TensorParallelGPT2::generate() and
// PipelineGPT2::generate().
//
//   const auto last_logits = [&](const at::Tensor& window) {
//     const at::Tensor input = parts::padded(window, sharing);
//     return parts::logits_at(window.size(1) - 1, forward(input), input.size(1), config, sharing);
//   };
//   return models::generate(last_logits, tokens, parts::bounded(options, config, sharing),
//                           [&](const at::Tensor& next) { return parts::agreed(next, sharing); });
//
// Padding   A sequence has a length that the context axis and, under sequence parallelism, the tensor axis
//           divide. What is added at its end changes nothing before it, since attention is causal.
// Equal     logits_at() gives all ranks the same bits. Their generators may differ, so one of them draws.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/models/generate.h"
#include "lockstep/models/gpt2_parallel_parts.h"

namespace lockstep::models::parts {

// With at most as many of the last tokens as such a sequence may have.
GenerateOptions bounded(const GenerateOptions& options, const GPT2Config& config, const Sharing& sharing);

at::Tensor padded(const at::Tensor& window, const Sharing& sharing);

// The logits of all of the vocabulary for one place, [n, 1, vocabulary]. `logits`: this rank's, of its part
// of a sequence of `length` places. Collective: all ranks that share out the layers and the sequence.
at::Tensor logits_at(std::int64_t place, const at::Tensor& logits, std::int64_t length,
                     const GPT2Config& config, const Sharing& sharing);

// What the first of these ranks has chosen, also written over `next`. Collective.
at::Tensor agreed(const at::Tensor& next, const Sharing& sharing);

}  // namespace lockstep::models::parts
