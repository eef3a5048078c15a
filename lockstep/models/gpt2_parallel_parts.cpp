#include "lockstep/models/gpt2_parallel_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/context_parallel/ring_attention.h"
#include "lockstep/parallel/tensor_parallel/mappings.h"

namespace lockstep::models::parts {
namespace {

namespace tp = tensor_parallel;

tp::InitMethod normal(double deviation) {
  return [deviation](const at::Tensor& whole) { whole.normal_(0, deviation); };
}

void expect_tokens(const at::Tensor& tokens, std::int64_t n_positions) {
  if (tokens.dim() == 2 && tokens.size(1) >= 1 && tokens.size(1) <= n_positions) return;
  throw InvalidArgument(lockstep::str("GPT-2 on several ranks: tokens have shape ", tokens.sizes(),
                                      ", expected [n, t] with t from 1 to ", n_positions, " (n_positions)"));
}

at::Tensor own_part(const at::Tensor& whole, std::int64_t dim, const Sharing& sharing) {
  return sharing.context ? context_parallel::sequence_part(whole, dim, *sharing.context) : whole;
}

}  // namespace

const GPT2Config& checked(const GPT2Config& config) {
  config.check();
  return config;
}

tp::TransformerConfig layer_config(const GPT2Config& config, const Sharing& sharing) {
  const double residual = config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
  return {.hidden_size = config.n_embd,
          .num_attention_heads = config.n_head,
          .ffn_hidden_size = config.inner_size(),
          .attention_dropout = config.attn_pdrop,
          .hidden_dropout = config.resid_pdrop,
          .layernorm_epsilon = config.layer_norm_epsilon,
          .batch_first = !sharing.sequence_parallel,
          .sequence_parallel = sharing.sequence_parallel,
          .layout = tp::WeightLayout::IN_OUT,
          .init_method = normal(config.initializer_range),
          .output_layer_init_method = normal(residual),
          .names = {.input_layernorm = "ln_1",
                    .self_attention = "attn",
                    .linear_qkv = "c_attn",
                    .linear_proj = "c_proj",
                    .pre_mlp_layernorm = "ln_2",
                    .mlp = "mlp",
                    .linear_fc1 = "c_fc",
                    .linear_fc2 = "c_proj"},
          .context_group = sharing.context};
}

tp::VocabParallelEmbedding token_embedding(const GPT2Config& config, const Sharing& sharing) {
  const tp::VocabParallelEmbeddingOptions rows{.init = normal(config.initializer_range)};
  return tp::VocabParallelEmbedding(config.vocab_size, config.n_embd, sharing.group, rows);
}

torch::nn::Embedding position_embedding(const GPT2Config& config) {
  const at::Tensor places =
      at::empty({config.n_positions, config.n_embd}).normal_(0, config.initializer_range);
  return torch::nn::Embedding(torch::nn::EmbeddingOptions(config.n_positions, config.n_embd)._weight(places));
}

tp::VocabParallelEmbedding output_layer(const GPT2Config& config, const Sharing& sharing) {
  const tp::InitMethod as_linear = [&](const at::Tensor& whole) {
    whole.uniform_();  // models::GPT2 has a torch::nn::Linear, which has drawn values of its own before
    whole.normal_(0, config.initializer_range);
  };
  const tp::VocabParallelEmbeddingOptions rows{.init = as_linear};
  return tp::VocabParallelEmbedding(config.vocab_size, config.n_embd, sharing.group, rows);
}

at::Tensor embed(const at::Tensor& tokens, tp::VocabParallelEmbedding& wte, torch::nn::Embedding& wpe,
                 const GPT2Config& config, const Sharing& sharing, bool is_training) {
  expect_tokens(tokens, config.n_positions);
  const at::Tensor own = own_part(tokens, 1, sharing);
  const at::Tensor places =
      wpe(own_part(at::arange(tokens.size(1), tokens.options().dtype(at::kLong)), 0, sharing));
  if (!sharing.sequence_parallel)
    return tp::hidden_dropout(wte(own) + places, config.embd_pdrop, is_training, false, sharing.group);
  const at::Tensor whole = wte(own.t()) + places.unsqueeze(1);
  const at::Tensor part = tp::scatter_to_sequence_parallel_region(whole, sharing.group);
  return tp::hidden_dropout(part, config.embd_pdrop, is_training, true, sharing.group);
}

at::Tensor logits_of(const at::Tensor& hidden, const at::Tensor& rows, const Sharing& sharing) {
  return tp::column_parallel_linear(hidden, rows, {},
                                    {.group = sharing.group, .sequence_parallel = sharing.sequence_parallel});
}

}  // namespace lockstep::models::parts
