// GPT2Config: the sizes and rates of a GPT-2, by the names of Hugging Face's config.json.
//
//   auto config = models::GPT2Config::medium();              // 354,823,168 parameters
//   config.vocab_size = 50304;                               // a multiple of 64 is faster
//   std::int64_t count = config.parameter_count();           // nothing is allocated
//   config = models::read_gpt2_config("gpt2/config.json");
//
//                small        medium       large        XL
//   n_layer      12           24           36           48
//   n_embd       768          1024         1280         1600
//   n_head       12           16           20           25
//   parameters   124,439,808  354,823,168  774,030,080  1,557,611,200
//
// Fails       InvalidArgument: a size that is not positive, n_embd that n_head does not divide, a dropout
//             probability outside of [0, 1], a config.json of a model with other formulas (below).
//             FormatError, naming the file: no JSON, a value of another type. SystemError: the file cannot be
//             read or written.
// Source      Radford et al.: Language Models are Unsupervised Multitask Learners (2019), table 2. The
//             defaults are those of Hugging Face's GPT2Config.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::models {

struct GPT2Config {
  std::int64_t vocab_size = 50257;
  std::int64_t n_positions = 1024;  // the longest sequence
  std::int64_t n_embd = 768;        // width of the residual stream
  std::int64_t n_layer = 12;
  std::int64_t n_head = 12;
  std::int64_t n_inner = 0;  // width within the MLP; 0: 4 * n_embd
  double embd_pdrop = 0.1;   // dropout of the embeddings,
  double attn_pdrop = 0.1;   // of the attention's weights,
  double resid_pdrop = 0.1;  // and of each block's additions to the residual stream
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;  // standard deviation of initial weights
  bool tie_word_embeddings = true;  // the output layer's weight is that of the token embedding

  static GPT2Config small() { return {}; }
  static GPT2Config medium() { return {.n_embd = 1024, .n_layer = 24, .n_head = 16}; }
  static GPT2Config large() { return {.n_embd = 1280, .n_layer = 36, .n_head = 20}; }
  static GPT2Config xl() { return {.n_embd = 1600, .n_layer = 48, .n_head = 25}; }

  std::int64_t inner_size() const { return n_inner > 0 ? n_inner : 4 * n_embd; }
  std::int64_t parameters_of_block() const;  // each of the n_layer blocks
  std::int64_t parameter_count() const;      // of the whole model; a tied weight counts once
  void check() const;                        // throws InvalidArgument that names each wrong field

  bool operator==(const GPT2Config&) const = default;
};

// Reads a config.json of Hugging Face's. Missing fields have the defaults above. Fields that change nothing
// here (vocabulary, generation, summaries) are ignored. Throws InvalidArgument that names the field: another
// "model_type" than gpt2, another activation than gelu_new (or gelu_pytorch_tanh, the same), cross-attention,
// scale_attn_weights = false, scale_attn_by_inverse_layer_idx.
GPT2Config read_gpt2_config(const std::string& path);

// Writes such a file, whole or not at all. Hugging Face's GPT2LMHeadModel.from_pretrained reads it.
void write_gpt2_config(const GPT2Config& config, const std::string& path);

}  // namespace lockstep::models
