#include "lockstep/models/gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/init.h>

#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/models/eval_mode.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

// Deviation of the weights that add to the residual stream. Each block has two, so this keeps the sum's
// variance from growing with n_layer.
double residual_deviation(const GPT2Config& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

// Draws the weights only once: nn::Embedding would first draw them from another distribution.
nn::Embedding embedding(std::int64_t rows, const GPT2Config& config) {
  const at::Tensor weight = at::empty({rows, config.n_embd}).normal_(0, config.initializer_range);
  return nn::Embedding(nn::EmbeddingOptions(rows, config.n_embd)._weight(weight));
}

nn::LayerNorm layer_norm(const GPT2Config& config) {
  return nn::LayerNorm(nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_epsilon));
}

const GPT2Config& checked(const GPT2Config& config) {
  config.check();
  return config;
}

void check_tokens(const at::Tensor& tokens, std::int64_t n_positions) {
  if (tokens.scalar_type() != at::kLong && tokens.scalar_type() != at::kInt)
    throw InvalidArgument(
        str("GPT2: tokens are ", toString(tokens.scalar_type()), ", expected int64 or int32"));
  if (tokens.dim() != 2 || tokens.size(1) < 1 || tokens.size(1) > n_positions)
    throw InvalidArgument(lockstep::str("GPT2: tokens have shape ", tokens.sizes(),
                                        ", expected [n, t] with t from 1 to ", n_positions,
                                        " (n_positions)"));
}

}  // namespace

Conv1DImpl::Conv1DImpl(std::int64_t in, std::int64_t out, double deviation) {
  weight = register_parameter("weight", at::empty({in, out}).normal_(0, deviation));
  bias = register_parameter("bias", at::empty({out}).zero_());
}

at::Tensor Conv1DImpl::forward(const at::Tensor& x) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  return at::addmm(bias, x.reshape({-1, weight.size(0)}), weight).view(sizes);
}

GPT2AttentionImpl::GPT2AttentionImpl(const GPT2Config& config)
    : n_head_(config.n_head), attn_pdrop_(config.attn_pdrop) {
  const std::int64_t e = config.n_embd;
  c_attn = register_module("c_attn", Conv1D(e, 3 * e, config.initializer_range));
  c_proj = register_module("c_proj", Conv1D(e, e, residual_deviation(config)));
  resid_dropout = register_module("resid_dropout", nn::Dropout(config.resid_pdrop));
}

at::Tensor GPT2AttentionImpl::forward(const at::Tensor& x) {
  const std::int64_t n = x.size(0), t = x.size(1), e = x.size(2);
  // [n, t, 3 * e] to three of [n, n_head, t, e / n_head]
  const auto qkv = c_attn(x).view({n, t, 3, n_head_, e / n_head_}).permute({2, 0, 3, 1, 4}).unbind();
  const at::Tensor y = at::scaled_dot_product_attention(
      qkv[0], qkv[1], qkv[2], /*attn_mask=*/{}, is_training() ? attn_pdrop_ : 0.0, /*is_causal=*/true);
  return resid_dropout(c_proj(y.transpose(1, 2).reshape({n, t, e})));
}

GPT2MLPImpl::GPT2MLPImpl(const GPT2Config& config) {
  const std::int64_t e = config.n_embd, inner = config.inner_size();
  c_fc = register_module("c_fc", Conv1D(e, inner, config.initializer_range));
  c_proj = register_module("c_proj", Conv1D(inner, e, residual_deviation(config)));
  dropout = register_module("dropout", nn::Dropout(config.resid_pdrop));
}

at::Tensor GPT2MLPImpl::forward(const at::Tensor& x) {
  return dropout(c_proj(at::gelu(c_fc(x), /*approximate=*/"tanh")));
}

GPT2BlockImpl::GPT2BlockImpl(const GPT2Config& config) {
  ln_1 = register_module("ln_1", layer_norm(config));
  attn = register_module("attn", GPT2Attention(config));
  ln_2 = register_module("ln_2", layer_norm(config));
  mlp = register_module("mlp", GPT2MLP(config));
}

at::Tensor GPT2BlockImpl::forward(const at::Tensor& x) {
  const at::Tensor y = x + attn(ln_1(x));
  return y + mlp(ln_2(y));
}

GPT2ModelImpl::GPT2ModelImpl(const GPT2Config& config) {
  checked(config);
  wte = register_module("wte", embedding(config.vocab_size, config));
  wpe = register_module("wpe", embedding(config.n_positions, config));
  drop = register_module("drop", nn::Dropout(config.embd_pdrop));
  h = register_module("h", nn::ModuleList());
  for (std::int64_t i = 0; i < config.n_layer; ++i) h->push_back(GPT2Block(config));
  ln_f = register_module("ln_f", layer_norm(config));
}

at::Tensor GPT2ModelImpl::forward(const at::Tensor& tokens) {
  check_tokens(tokens, wpe->options.num_embeddings());
  const at::Tensor positions = at::arange(tokens.size(1), tokens.options().dtype(at::kLong));
  at::Tensor x = drop(wte(tokens) + wpe(positions));
  for (std::size_t i = 0; i < h->size(); ++i) {
    GPT2Block block(h->ptr<GPT2BlockImpl>(i));
    x = run_block ? run_block(block, x) : block(x);
  }
  return ln_f(x);
}

GPT2Impl::GPT2Impl(const GPT2Config& config) : config_(checked(config)) {
  transformer = register_module("transformer", GPT2Model(config));
  if (config.tie_word_embeddings) return;
  lm_head =
      register_module("lm_head", nn::Linear(nn::LinearOptions(config.n_embd, config.vocab_size).bias(false)));
  nn::init::normal_(lm_head->weight, 0, config.initializer_range);
}

at::Tensor GPT2Impl::forward(const at::Tensor& tokens) { return logits_of(transformer(tokens)); }

at::Tensor GPT2Impl::logits_of(const at::Tensor& hidden) {
  return lm_head.is_empty() ? at::linear(hidden, transformer->wte->weight) : lm_head(hidden);
}

at::Tensor GPT2Impl::generate(const at::Tensor& tokens, const GenerateOptions& options) {
  const EvalMode eval(*this);
  GenerateOptions within = options;
  const bool is_shorter = options.context != 0 && options.context < config_.n_positions;
  if (!is_shorter) within.context = config_.n_positions;
  const auto last_logits = [&](const at::Tensor& window) {
    return logits_of(transformer(window).slice(1, window.size(1) - 1));
  };
  return models::generate(last_logits, tokens, within);
}

at::Tensor next_token_loss(const at::Tensor& logits, const at::Tensor& targets, std::int64_t ignore_index) {
  if (logits.dim() < 2 || logits.sizes().slice(0, logits.dim() - 1) != targets.sizes())
    throw InvalidArgument(lockstep::str("next_token_loss: logits have shape ", logits.sizes(),
                                        " and targets ", targets.sizes(),
                                        "; expected [..., vocabulary] and [...]"));
  const bool is_half = logits.scalar_type() == at::kHalf || logits.scalar_type() == at::kBFloat16;
  return at::cross_entropy_loss((is_half ? logits.to(at::kFloat) : logits).flatten(0, -2), targets.flatten(),
                                /*weight=*/{}, at::Reduction::Mean, ignore_index);
}

}  // namespace lockstep::models
