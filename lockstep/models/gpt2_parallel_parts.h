// What TensorParallelGPT2 and PipelineGPT2 make of a GPT2Config: layers, embeddings and the output layer in
// pieces, with the names, first values and formulas of models::GPT2.
//
//   const parts::Sharing sharing{.group = tensor_group, .sequence_parallel = true};
//   wte = register_module("wte", parts::token_embedding(config, sharing));
//   wpe = register_module("wpe", parts::position_embedding(config));
//   const auto layer = parts::layer_config(config, sharing);
//   h->push_back(tensor_parallel::ParallelTransformerLayer(layer, sharing.group));
//
// First values of each part are drawn when it is made. Parts that are made in the order of models::GPT2,
// after one seed, have the values of that model; a part that is not kept is made all the same.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/embedding.h>

#include <optional>

#include "lockstep/comm/process_group.h"
#include "lockstep/models/gpt2_config.h"
#include "lockstep/parallel/tensor_parallel/parallel_transformer_layer.h"
#include "lockstep/parallel/tensor_parallel/transformer_config.h"
#include "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h"

namespace lockstep::models::parts {

// Over which ranks the model is shared out.
struct Sharing {
  ProcessGroup group;  // of tensor parallelism
  bool sequence_parallel = false;
  std::optional<ProcessGroup> context = {};
};

// Throws InvalidArgument as GPT2Config::check().
const GPT2Config& checked(const GPT2Config& config);

tensor_parallel::TransformerConfig layer_config(const GPT2Config& config, const Sharing& sharing);
tensor_parallel::VocabParallelEmbedding token_embedding(const GPT2Config& config, const Sharing& sharing);
torch::nn::Embedding position_embedding(const GPT2Config& config);
// With tie_word_embeddings = false.
tensor_parallel::VocabParallelEmbedding output_layer(const GPT2Config& config, const Sharing& sharing);

// Tokens [n, t], of the whole sequence, to [n, t, n_embd] with dropout: of this rank's part of the sequence,
// and under sequence_parallel of its places in [t, n, n_embd].
at::Tensor embed(const at::Tensor& tokens, tensor_parallel::VocabParallelEmbedding& wte,
                 torch::nn::Embedding& wpe, const GPT2Config& config, const Sharing& sharing,
                 bool is_training);

// This rank's logits.
at::Tensor logits_of(const at::Tensor& hidden, const at::Tensor& rows, const Sharing& sharing);

}  // namespace lockstep::models::parts
