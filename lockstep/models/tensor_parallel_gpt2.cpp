#include "lockstep/models/tensor_parallel_gpt2.h"

#include <utility>

#include "lockstep/models/eval_mode.h"
#include "lockstep/models/gpt2_parallel_generate.h"
#include "lockstep/parallel/tensor_parallel/cross_entropy.h"

namespace lockstep::models {

namespace tp = tensor_parallel;

TensorParallelGPT2ModelImpl::TensorParallelGPT2ModelImpl(const GPT2Config& config,
                                                         const parts::Sharing& sharing)
    : config_(parts::checked(config)), sharing_(sharing) {
  wte = register_module("wte", parts::token_embedding(config, sharing));
  wpe = register_module("wpe", parts::position_embedding(config));
  h = register_module("h", torch::nn::ModuleList());
  const tp::TransformerConfig layer = parts::layer_config(config, sharing);
  for (std::int64_t i = 0; i < config.n_layer; ++i)
    h->push_back(tp::ParallelTransformerLayer(layer, sharing.group));
  ln_f = register_module("ln_f", tp::SequenceParallelLayerNorm(config.n_embd, config.layer_norm_epsilon,
                                                               sharing.sequence_parallel, sharing.group));
}

at::Tensor TensorParallelGPT2ModelImpl::forward(const at::Tensor& tokens) {
  at::Tensor x = parts::embed(tokens, wte, wpe, config_, sharing_, is_training());
  for (std::size_t i = 0; i < h->size(); ++i) {
    tp::ParallelTransformerLayer block(h->ptr<tp::ParallelTransformerLayerImpl>(i));
    x = run_block ? run_block(block, x) : block(x);
  }
  return ln_f(x);
}

TensorParallelGPT2Impl::TensorParallelGPT2Impl(const GPT2Config& config, const ProcessGroup& group,
                                               TensorParallelGPT2Options options)
    : config_(parts::checked(config)),
      sharing_{.group = group, .sequence_parallel = options.sequence_parallel} {
  transformer = register_module("transformer", TensorParallelGPT2Model(config, sharing_));
  if (!config.tie_word_embeddings)
    lm_head = register_module("lm_head", parts::output_layer(config, sharing_));
}

at::Tensor TensorParallelGPT2Impl::forward(const at::Tensor& tokens) {
  const at::Tensor& rows = lm_head.is_empty() ? transformer->wte->weight : lm_head->weight;
  return parts::logits_of(transformer(tokens), rows, sharing_);
}

at::Tensor TensorParallelGPT2Impl::loss(const at::Tensor& tokens, const at::Tensor& targets,
                                        std::int64_t ignore_index) {
  return tp::vocab_parallel_cross_entropy(forward(tokens), sharing_.sequence_parallel ? targets.t() : targets,
                                          sharing_.group,
                                          {.vocab_size = config_.vocab_size, .ignore_index = ignore_index});
}

at::Tensor TensorParallelGPT2Impl::generate(const at::Tensor& tokens, const GenerateOptions& options) {
  const EvalMode eval(*this);
  const auto last_logits = [&](const at::Tensor& window) {
    const at::Tensor input = parts::padded(window, sharing_);
    return parts::logits_at(window.size(1) - 1, forward(input), input.size(1), config_, sharing_);
  };
  return models::generate(last_logits, tokens, parts::bounded(options, config_, sharing_),
                          [&](const at::Tensor& next) { return parts::agreed(next, sharing_); });
}

}  // namespace lockstep::models
