// The bytes of activations that a transformer keeps from forward to backward, on one rank, for one
// micro-batch. Pure.
//
//   const TransformerShape gpt3{.layers = 96, .hidden = 12288, .heads = 96, .sequence = 2048};
//   activation_bytes(gpt3, Recompute::NONE);           // 2.75e11
//   activation_bytes(gpt3, Recompute::SELECTIVE);      // 0.30 of it, and one layer's attention
//
// s the sequence's length, b the micro-batch, h the hidden size, a the heads, v the vocabulary, e bytes of an
// element (2 of fp16 and bf16); the masks of dropout take one byte. Each layer keeps
//
//   NONE        (16 e + 2) s b h + (2 e + 1) a s^2 b       with e = 2: s b h (34 + 5 a s/h)
//   SELECTIVE   (16 e + 2) s b h            softmax, its dropout and the product with V are computed again
//   FULL        e s b h                     its input
//
// Recomputing needs the layer's whole activations of NONE once more. The paper omits these; here one layer's
// are counted. A vocabulary adds the dropout behind the embedding, the last layer norm, the input of the
// output layer and the logits in float32: (1 + 2 e) s b h + 4 s b v.
//
// Source      Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022,
//             arXiv 2205.05198, section 4. There e is 2; the terms with e are its elements of 2 bytes,
//             counted.
// Assumes     an MLP four times as wide as h with GeLU; attention that keeps its s x s matrices (a fused
//             kernel keeps none: SELECTIVE's bytes without its cost); no tensor or pipeline parallelism.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::cli {

struct TransformerShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t sequence = 0;
  std::int64_t micro_batch = 1;
  std::int64_t vocabulary = 0;  // 0: embedding and output layer are not counted
};

enum class Recompute { NONE, SELECTIVE, FULL };
std::string_view name_of(Recompute recompute);  // "selective"

double activation_bytes(const TransformerShape& shape, Recompute recompute, double element = 2);

}  // namespace lockstep::cli
