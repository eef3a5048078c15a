// generate: continues sequences of tokens with a language model, one token at a time.
//
//   at::Tensor longer = models::generate([&](const at::Tensor& x) { return lm->forward(x); }, tokens,
//                                        {.max_new_tokens = 100, .do_sample = true, .temperature = 0.8,
//                                         .top_k = 50});
//
// Greedy      without do_sample the likeliest token is taken, of equal ones the lowest.
// Sampling    with do_sample one is drawn by softmax(logits / temperature), among the top_k likeliest.
// Forward     is called once for each new token with all tokens before it, without gradients: there is no
//             cache of keys and values, so t new tokens cost t forwards.
// Collective  no. Ranks that shall print the same sample draw from generators of the same seed. A `forward`
//             that communicates is called equally often on ranks that hold the same tokens.
// Fails       InvalidArgument: options out of range, tokens that are not int64 [n, t] with t >= 1, logits of
//             another shape. What `forward` throws.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace lockstep::models {

// The names and defaults of Hugging Face's GenerationConfig, but for top_k, which there is 50.
struct GenerateOptions {
  std::int64_t max_new_tokens = 20;
  bool do_sample = false;                    // false: greedy
  double temperature = 1;                    // below 1: the likely becomes likelier
  std::int64_t top_k = 0;                    // 0: of all tokens
  std::optional<std::int64_t> eos_token_id;  // ends a row, which repeats it until the longest row ends
  std::optional<at::Generator> generator;    // of the draws; none: libtorch's own
  std::int64_t context = 0;                  // `forward` sees so many of the last tokens; 0: all
};

// int64 [n, t] to [n, t + new tokens]. `forward` answers the logits of tokens [n, t], as [n, t, vocabulary]
// or for the last place alone as [n, 1, vocabulary].
at::Tensor generate(const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                    const at::Tensor& tokens, const GenerateOptions& options = {});

}  // namespace lockstep::models
