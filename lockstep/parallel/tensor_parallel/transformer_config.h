// TransformerConfig: the sizes and rates of a tensor-parallel transformer layer and its parts
// (parallel_transformer_layer.h), by Megatron's names.
//
//   namespace tp = dist::tensor_parallel;
//   tp::TransformerConfig config{.hidden_size = 1024, .num_attention_heads = 16};
//   config.num_query_groups = 4;
//   tp::ParallelTransformerLayer layer(config, group);
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/tensor_parallel/parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"

namespace lockstep::tensor_parallel {

// What the parts of a layer are called in a state dict.
struct TransformerNames {
  std::string input_layernorm = "input_layernorm";
  std::string self_attention = "self_attention";
  std::string linear_qkv = "linear_qkv";
  std::string linear_proj = "linear_proj";
  std::string pre_mlp_layernorm = "pre_mlp_layernorm";
  std::string mlp = "mlp";
  std::string linear_fc1 = "linear_fc1";
  std::string linear_fc2 = "linear_fc2";
};

struct TransformerConfig {
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;  // divides hidden_size
  std::int64_t num_query_groups = 0;     // heads of keys and values, each for several of queries; 0: as many
  std::int64_t ffn_hidden_size = 0;      // within the MLP; 0: 4 * hidden_size
  double attention_dropout = 0;
  double hidden_dropout = 0;
  double layernorm_epsilon = 1e-5;
  bool is_causal = true;
  bool batch_first = true;         // [batch, sequence, hidden_size]; otherwise [sequence, batch, hidden_size]
  bool sequence_parallel = false;  // between attention and MLP a rank holds its part of dimension 0
  WeightLayout layout = WeightLayout::OUT_IN;
  InitMethod init_method = {};               // default: torch::nn::Linear's
  InitMethod output_layer_init_method = {};  // of linear_proj and linear_fc2; default: init_method
  TransformerNames names = {};
  // The ranks that share each sequence: a rank has its sequence_part() of it, and the attention is
  // ring_attention() (context_parallel/ring_attention.h). Then attention_dropout is 0.
  std::optional<ProcessGroup> context_group = {};

  std::int64_t query_groups() const { return num_query_groups > 0 ? num_query_groups : num_attention_heads; }
  std::int64_t ffn_size() const { return ffn_hidden_size > 0 ? ffn_hidden_size : 4 * hidden_size; }
  const InitMethod& output_init() const {
    return output_layer_init_method ? output_layer_init_method : init_method;
  }
};

}  // namespace lockstep::tensor_parallel
