// generate: continues sequences of tokens with a language model, one token at a time.
//
//   at::Tensor longer = models::generate([&](const at::Tensor& x) { return lm->forward(x); }, tokens,
//                                        {.max_new_tokens = 100, .do_sample = true, .temperature = 0.8,
//                                         .top_k = 50});
//
// Greedy      Without do_sample the most likely token is taken, of equal ones the lowest.
// Sampling    With do_sample a token is drawn by softmax(logits / temperature), among the top_k most likely.
// Forward     is called once for each new token with all tokens before it, without gradients. There is no
//             cache of keys and values, so t new tokens cost t forwards.
// Collective  It is not. If `forward` communicates, it is called the same number of times on ranks with the
//             same tokens. Such ranks give `agreed`, so that all go on with the token that one of them drew.
// Fails       InvalidArgument: options out of range, tokens that are not int64 [n, t] with t >= 1, logits of
//             another shape. Also the errors of `forward`.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace lockstep::models {

// The names and defaults of Hugging Face's GenerationConfig, except for top_k, which is 50 there.
struct GenerateOptions {
  std::int64_t max_new_tokens = 20;
  bool do_sample = false;                    // false: greedy
  double temperature = 1;                    // below 1, likely tokens become more likely
  std::int64_t top_k = 0;                    // 0: samples from all tokens
  std::optional<std::int64_t> eos_token_id;  // ends a row; the row repeats it until the longest row ends
  // Used for the draws, on its device, whichever the model's is; none: libtorch's default.
  std::optional<at::Generator> generator;
  std::int64_t context = 0;  // `forward` gets at most this many of the last tokens; 0: all
};

// Extends int64 [n, t] to [n, t + new tokens]. `forward` returns the logits of tokens [n, t], as [n, t,
// vocabulary] or for the last place alone as [n, 1, vocabulary].
//
// `agreed` gets the tokens that this rank has chosen, int64 [n, 1], and returns those that all ranks take:
//
//   const auto agreed = [](const at::Tensor& next) { dist::broadcast(next, 0); return next; };
at::Tensor generate(const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                    const at::Tensor& tokens, const GenerateOptions& options = {},
                    const std::function<at::Tensor(const at::Tensor& next)>& agreed = {});

}  // namespace lockstep::models
