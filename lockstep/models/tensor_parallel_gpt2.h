// TensorParallelGPT2: the GPT-2 of models/gpt2.h with each layer shared out over the ranks of a
// tensor-parallel group.
//
//   dist::tensor_parallel::model_parallel_manual_seed(1, group);
//   models::TensorParallelGPT2 net(models::GPT2Config::small(), group);
//   at::Tensor loss = net->loss(batch.data, batch.target);        // the same batch on all ranks of the group
//   loss.backward();
//
// Same        names, shapes (of the whole parameters), first values and formulas as models::GPT2: with
//             one seed it trains as that model does in one process, up to the rounding of sums in another
//             order. So Hugging Face's files, GPT2's checkpoints and its own fit each other, by
//             ModelState (parallel/tensor_parallel/model_state.h).
// Shared out  attention by heads, MLP by inner features, token embedding and output layer by rows of the
//             vocabulary, which need not divide evenly. wpe and the layer norms are whole.
// Loss        The logits exist in parts alone: forward() returns this rank's [n, t, rows], and loss() is
//             the mean cross entropy of models::next_token_loss, equal on all ranks.
// Sequence    With sequence_parallel the layers run on [t, n, n_embd], of which each rank has t / ranks
//             places between attention and MLP. forward() then returns [t, n, rows].
// Dropout     as the config says. Dropout of whole activations is the same for any number of ranks; that of
//             heads and of sequence parts is another (parallel/tensor_parallel/random.h).
// Collective  every rank of the group, with the same config and tokens, in forward and backward.
// Fails       InvalidArgument: n_head or the inner size that the ranks do not divide; under
//             sequence_parallel t that the ranks do not divide; as models::GPT2 for config and tokens.
// Text        generate() gives all ranks of the group the same continuation, that of models::GPT2. It is
//             collective, with the same tokens and options; the group's first rank draws.
#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>

#include <functional>

#include "lockstep/comm/process_group.h"
#include "lockstep/models/generate.h"
#include "lockstep/models/gpt2_config.h"
#include "lockstep/models/gpt2_parallel_parts.h"
#include "lockstep/parallel/tensor_parallel/parallel_transformer_layer.h"
#include "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h"

namespace lockstep::models {

struct TensorParallelGPT2Options {
  bool sequence_parallel = false;
};

// All but the output layer.
struct TensorParallelGPT2ModelImpl : torch::nn::Module {
  TensorParallelGPT2ModelImpl(const GPT2Config& config, const parts::Sharing& sharing);
  at::Tensor forward(const at::Tensor& tokens);

  tensor_parallel::VocabParallelEmbedding wte{nullptr};
  torch::nn::Embedding wpe{nullptr};
  torch::nn::ModuleList h{nullptr};  // of ParallelTransformerLayer
  tensor_parallel::SequenceParallelLayerNorm ln_f{nullptr};

  // As GPT2ModelImpl::run_block: for activation checkpointing. Empty: block->forward(x).
  std::function<at::Tensor(tensor_parallel::ParallelTransformerLayer block, const at::Tensor& x)> run_block;

 private:
  const GPT2Config config_;
  const parts::Sharing sharing_;
};
TORCH_MODULE(TensorParallelGPT2Model);

struct TensorParallelGPT2Impl : torch::nn::Module {
  TensorParallelGPT2Impl(const GPT2Config& config, const ProcessGroup& group,
                         TensorParallelGPT2Options options = {});

  // This rank's logits of int64 or int32 tokens [n, t].
  at::Tensor forward(const at::Tensor& tokens);
  // `targets`: int64 [n, t], the next tokens.
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets, std::int64_t ignore_index = -100);
  // As models::GPT2::generate().
  at::Tensor generate(const at::Tensor& tokens, const GenerateOptions& options = {});

  TensorParallelGPT2Model transformer{nullptr};
  tensor_parallel::VocabParallelEmbedding lm_head{nullptr};  // rows, only with tie_word_embeddings = false

 private:
  const GPT2Config config_;
  const parts::Sharing sharing_;
};
TORCH_MODULE(TensorParallelGPT2);

}  // namespace lockstep::models
