#include "lockstep/models/tensor_parallel_gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/tensor_parallel/cross_entropy.h"
#include "lockstep/parallel/tensor_parallel/mappings.h"

namespace lockstep::models {
namespace {

namespace tp = tensor_parallel;

tp::InitMethod normal(double deviation) {
  return [deviation](const at::Tensor& whole) { whole.normal_(0, deviation); };
}

tp::TransformerConfig layer_config(const GPT2Config& config, bool sequence_parallel) {
  const double residual = config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
  return {.hidden_size = config.n_embd,
          .num_attention_heads = config.n_head,
          .ffn_hidden_size = config.inner_size(),
          .attention_dropout = config.attn_pdrop,
          .hidden_dropout = config.resid_pdrop,
          .layernorm_epsilon = config.layer_norm_epsilon,
          .batch_first = !sequence_parallel,
          .sequence_parallel = sequence_parallel,
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
                    .linear_fc2 = "c_proj"}};
}

void expect_tokens(const at::Tensor& tokens, std::int64_t n_positions) {
  if (tokens.dim() == 2 && tokens.size(1) >= 1 && tokens.size(1) <= n_positions) return;
  throw InvalidArgument(lockstep::str("TensorParallelGPT2: tokens have shape ", tokens.sizes(),
                                      ", expected [n, t] with t from 1 to ", n_positions, " (n_positions)"));
}

const GPT2Config& in_range(const GPT2Config& config) {
  config.check();
  return config;
}

}  // namespace

TensorParallelGPT2ModelImpl::TensorParallelGPT2ModelImpl(const GPT2Config& config, const ProcessGroup& group,
                                                         const TensorParallelGPT2Options& options)
    : config_(in_range(config)), group_(group), sequence_parallel_(options.sequence_parallel) {
  const tp::TransformerConfig layer = layer_config(config, sequence_parallel_);
  const tp::VocabParallelEmbeddingOptions rows{.init = layer.init_method};
  wte = register_module("wte", tp::VocabParallelEmbedding(config.vocab_size, config.n_embd, group, rows));
  const at::Tensor places =
      at::empty({config.n_positions, config.n_embd}).normal_(0, config.initializer_range);
  wpe = register_module(
      "wpe",
      torch::nn::Embedding(torch::nn::EmbeddingOptions(config.n_positions, config.n_embd)._weight(places)));
  h = register_module("h", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.n_layer; ++i) h->push_back(tp::ParallelTransformerLayer(layer, group));
  ln_f = register_module("ln_f", tp::SequenceParallelLayerNorm(config.n_embd, config.layer_norm_epsilon,
                                                               sequence_parallel_, group));
}

// [n, t, n_embd], or this rank's places of [t, n, n_embd].
at::Tensor TensorParallelGPT2ModelImpl::embed(const at::Tensor& tokens) {
  const at::Tensor places = wpe(at::arange(tokens.size(1), tokens.options().dtype(at::kLong)));
  if (!sequence_parallel_)
    return tp::hidden_dropout(wte(tokens) + places, config_.embd_pdrop, is_training(), false, group_);
  const at::Tensor whole = wte(tokens.t()) + places.unsqueeze(1);
  const at::Tensor part = tp::scatter_to_sequence_parallel_region(whole, group_);
  return tp::hidden_dropout(part, config_.embd_pdrop, is_training(), true, group_);
}

at::Tensor TensorParallelGPT2ModelImpl::forward(const at::Tensor& tokens) {
  expect_tokens(tokens, config_.n_positions);
  at::Tensor x = embed(tokens);
  for (std::size_t i = 0; i < h->size(); ++i) {
    tp::ParallelTransformerLayer block(h->ptr<tp::ParallelTransformerLayerImpl>(i));
    x = run_block ? run_block(block, x) : block(x);
  }
  return ln_f(x);
}

TensorParallelGPT2Impl::TensorParallelGPT2Impl(const GPT2Config& config, const ProcessGroup& group,
                                               TensorParallelGPT2Options options)
    : config_(in_range(config)), group_(group), options_(options) {
  transformer = register_module("transformer", TensorParallelGPT2Model(config, group, options));
  if (config.tie_word_embeddings) return;
  const tp::InitMethod as_linear = [&](const at::Tensor& whole) {
    whole.uniform_();  // models::GPT2 has a torch::nn::Linear, which has drawn values of its own before
    whole.normal_(0, config.initializer_range);
  };
  const tp::VocabParallelEmbeddingOptions rows{.init = as_linear};
  lm_head =
      register_module("lm_head", tp::VocabParallelEmbedding(config.vocab_size, config.n_embd, group, rows));
}

at::Tensor TensorParallelGPT2Impl::forward(const at::Tensor& tokens) {
  const at::Tensor& rows = lm_head.is_empty() ? transformer->wte->weight : lm_head->weight;
  return tp::column_parallel_linear(transformer(tokens), rows, {},
                                    {.group = group_, .sequence_parallel = options_.sequence_parallel});
}

at::Tensor TensorParallelGPT2Impl::loss(const at::Tensor& tokens, const at::Tensor& targets,
                                        std::int64_t ignore_index) {
  return tp::vocab_parallel_cross_entropy(forward(tokens), options_.sequence_parallel ? targets.t() : targets,
                                          group_,
                                          {.vocab_size = config_.vocab_size, .ignore_index = ignore_index});
}

}  // namespace lockstep::models
