#include "lockstep/models/generate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::models {
namespace {

void check_generation(const at::Tensor& tokens, const GenerateOptions& options) {
  const auto at_least_0 = [](const char* name, std::int64_t value) {
    if (value < 0) throw InvalidArgument(str("generate: ", name, " is ", value, ", expected 0 or more"));
  };
  at_least_0("max_new_tokens", options.max_new_tokens);
  at_least_0("top_k", options.top_k);
  at_least_0("context", options.context);
  if (!(options.temperature > 0) || std::isinf(options.temperature))
    throw InvalidArgument(str("generate: temperature is ", options.temperature,
                              ", expected a number above 0; do_sample = false takes the likeliest token"));
  if (tokens.scalar_type() != at::kLong || tokens.dim() != 2 || tokens.size(1) < 1)
    throw InvalidArgument(lockstep::str("generate: tokens are ", toString(tokens.scalar_type()), " of shape ",
                                        tokens.sizes(),
                                        ", expected int64 [n, t] with at least one token in a row"));
}

// Returns the logits of the last place: [n, vocabulary].
at::Tensor last_logits(const at::Tensor& logits, const at::Tensor& window) {
  if (logits.dim() != 3 || logits.size(0) != window.size(0) ||
      (logits.size(1) != window.size(1) && logits.size(1) != 1))
    throw InvalidArgument(lockstep::str("generate: forward of tokens ", window.sizes(),
                                        " gave logits of shape ", logits.sizes(), ", expected [",
                                        window.size(0), ", ", window.size(1), ", vocabulary] or [",
                                        window.size(0), ", 1, vocabulary]"));
  return logits.select(1, logits.size(1) - 1);
}

// [n, vocabulary] to [n, 1]. The generator draws on its own device.
at::Tensor draw(const at::Tensor& logits, const GenerateOptions& options) {
  const bool is_double = logits.scalar_type() == at::kDouble;
  at::Tensor scaled = logits.to(is_double ? at::kDouble : at::kFloat) / options.temperature;
  if (options.top_k > 0 && options.top_k < scaled.size(1)) {
    const at::Tensor lowest = std::get<0>(scaled.topk(options.top_k)).slice(1, options.top_k - 1);
    scaled = scaled.masked_fill(scaled < lowest, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor chances = scaled.softmax(1);
  const at::Device place = options.generator ? options.generator->device() : chances.device();
  return chances.to(place).multinomial(1, /*replacement=*/false, options.generator).to(chances.device());
}

}  // namespace

at::Tensor generate(const std::function<at::Tensor(const at::Tensor& tokens)>& forward,
                    const at::Tensor& tokens, const GenerateOptions& options,
                    const std::function<at::Tensor(const at::Tensor& next)>& agreed) {
  check_generation(tokens, options);
  const at::NoGradGuard no_grad;
  at::Tensor all = tokens;
  at::Tensor has_ended = at::full({tokens.size(0), 1}, false, tokens.options().dtype(at::kBool));
  for (std::int64_t i = 0; i < options.max_new_tokens; ++i) {
    const std::int64_t seen = options.context > 0 ? std::min(options.context, all.size(1)) : all.size(1);
    const at::Tensor window = all.slice(1, all.size(1) - seen);
    const at::Tensor logits = last_logits(forward(window), window);
    at::Tensor next = options.do_sample ? draw(logits, options) : logits.argmax(1, /*keepdim=*/true);
    if (agreed) next = agreed(next);
    if (options.eos_token_id) {
      next = next.masked_fill(has_ended, *options.eos_token_id);
      has_ended = has_ended.logical_or(next == *options.eos_token_id);
    }
    all = at::cat({all, next}, 1);
    if (options.eos_token_id && has_ended.all().item<bool>()) break;
  }
  return all;
}

}  // namespace lockstep::models
