// GPT-2 with the names, shapes and formulas of Hugging Face's GPT2LMHeadModel, so that each reads the other's
// files.
//
//   models::GPT2 net(models::GPT2Config::small());           // or {.n_embd = 128, .n_layer = 4, .n_head = 4}
//   models::load_gpt2(*net, "gpt2/model.safetensors");       // models/gpt2_files.h
//   at::Tensor logits = net->forward(batch.data);            // int64 [n, t] to [n, t, vocab_size]
//   at::Tensor loss = models::next_token_loss(logits, batch.target);
//   at::Tensor continued = net->generate(batch.data, {.max_new_tokens = 50});  // models/generate.h
//
// To keep the activations of one block at a time and compute the others again in backward
// (autograd/activation_checkpoint.h):
//
//   models::GPT2 net(models::GPT2Config::small());
//   net->transformer->run_block = [](models::GPT2Block block, const at::Tensor& x) {
//     return dist::checkpoint(block, x);
//   };
//
// Names       transformer.wte.weight [vocab_size, n_embd], transformer.wpe.weight, and of block 0
//             transformer.h.0.ln_1.weight, transformer.h.0.attn.c_attn.weight, ...; transformer.ln_f.bias.
//             Weights of Conv1D are [in, out], the transpose of a torch::nn::Linear's.
// Tied        The output layer is transformer.wte.weight itself: one parameter, whose gradient is the sum of
//             both uses. parameters() of libtorch lists a tensor under each of its names, and an optimiser
//             would step it twice. So the tied model has no parameter named lm_head.weight. With
//             tie_word_embeddings = false it has one.
// Blocks      pre-layer-norm: x += attn(ln_1(x)); x += mlp(ln_2(x)). The attention is
//             scaled_dot_product_attention, causal; the activation is gelu_new, the tanh approximation.
// Dropout     while is_training(): embd_pdrop, attn_pdrop and resid_pdrop, from libtorch's generators, which
//             set_seed(seed, rank) sets (train/reproducible.h).
// Weights     are initially normal of deviation initializer_range (0.02). Those of the two c_proj of a block
//             are divided by sqrt(2 n_layer), because 2 n_layer of them add to the residual stream. Biases
//             are 0, layer norms 1 and 0. The distribution is Hugging Face's, not the order of its random
//             draws. Each tensor is drawn when it is made, in the order of names.
// Tokens      are numbers below vocab_size. GPT-2's own tokens (byte-level BPE of vocab.json and merges.txt)
//             are made by Python's tokenizers, because no library of Debian 12 makes them (sentencepiece
//             reads neither file). data/token_dataset.h reads files of tokens. Bytes are tokens too, with
//             vocab_size = 256 (examples/13_gpt2.cpp).
// Fails       InvalidArgument: a config out of range (gpt2_config.h), input that is not int64 or int32 [n, t]
//             with 1 <= t <= n_positions. A token beyond the vocabulary is libtorch's IndexError.
// Source      Radford et al. (2019); Vaswani et al. (2017) for attention; Hendrycks and Gimpel (2016), GELU.
#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>

#include "lockstep/models/generate.h"
#include "lockstep/models/gpt2_config.h"

namespace lockstep::models {

// x * weight + bias, with weight [in, out]: the name and layout are those of the first GPT.
struct Conv1DImpl : torch::nn::Module {
  Conv1DImpl(std::int64_t in, std::int64_t out, double deviation);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;
  at::Tensor bias;
};
TORCH_MODULE(Conv1D);

struct GPT2AttentionImpl : torch::nn::Module {
  explicit GPT2AttentionImpl(const GPT2Config& config);
  at::Tensor forward(const at::Tensor& x);

  Conv1D c_attn{nullptr};  // to query, key and value, side by side
  Conv1D c_proj{nullptr};
  torch::nn::Dropout resid_dropout{nullptr};

 private:
  std::int64_t n_head_;
  double attn_pdrop_;
};
TORCH_MODULE(GPT2Attention);

struct GPT2MLPImpl : torch::nn::Module {
  explicit GPT2MLPImpl(const GPT2Config& config);
  at::Tensor forward(const at::Tensor& x);

  Conv1D c_fc{nullptr};
  Conv1D c_proj{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(GPT2MLP);

struct GPT2BlockImpl : torch::nn::Module {
  explicit GPT2BlockImpl(const GPT2Config& config);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::LayerNorm ln_1{nullptr};
  GPT2Attention attn{nullptr};
  torch::nn::LayerNorm ln_2{nullptr};
  GPT2MLP mlp{nullptr};
};
TORCH_MODULE(GPT2Block);

// All but the output layer. Maps tokens [n, t] to the last layer norm's output [n, t, n_embd].
struct GPT2ModelImpl : torch::nn::Module {
  explicit GPT2ModelImpl(const GPT2Config& config);
  at::Tensor forward(const at::Tensor& tokens);

  torch::nn::Embedding wte{nullptr};
  torch::nn::Embedding wpe{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::ModuleList h{nullptr};  // of GPT2Block
  torch::nn::LayerNorm ln_f{nullptr};

  // Runs a block and returns its output; empty: block->forward(x). A program sets it for activation
  // checkpointing (a room above this one), for timing, or for blocks on several devices.
  std::function<at::Tensor(GPT2Block block, const at::Tensor& x)> run_block;
};
TORCH_MODULE(GPT2Model);

struct GPT2Impl : torch::nn::Module {
  explicit GPT2Impl(const GPT2Config& config = {});
  at::Tensor forward(const at::Tensor& tokens);

  // Returns the tokens and their continuation, as generate() of models/generate.h, in eval mode, without
  // gradients. Restores the training mode afterwards.
  at::Tensor generate(const at::Tensor& tokens, const GenerateOptions& options = {});

  const GPT2Config& config() const { return config_; }

  GPT2Model transformer{nullptr};
  torch::nn::Linear lm_head{nullptr};  // only with tie_word_embeddings = false

 private:
  at::Tensor logits_of(const at::Tensor& hidden);

  GPT2Config config_;
};
TORCH_MODULE(GPT2);

// The mean cross entropy of each place's token, in float32 at least. `targets` is int64 of the logits' shape
// without the last dimension, and holds the next tokens: TokenDataset's batch.target. Places with
// `ignore_index` do not count. If all places have it, the loss is NaN, as in torch. For tokens alone:
//
//   at::Tensor logits = net->forward(tokens);
//   loss = models::next_token_loss(logits.slice(1, 0, -1), tokens.slice(1, 1));
//
// Throws InvalidArgument: the shapes do not go together.
at::Tensor next_token_loss(const at::Tensor& logits, const at::Tensor& targets,
                           std::int64_t ignore_index = -100);

}  // namespace lockstep::models
