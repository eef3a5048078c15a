#include "lockstep/models/gpt2_config.h"

#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/atomic_file.h"
#include "lockstep/os/plain_file.h"

namespace lockstep::models {
namespace {

using ConfigJson = nlohmann::ordered_json;

constexpr std::uint64_t MAX_CONFIG_BYTES = 1'000'000;
constexpr std::int64_t END_OF_TEXT = 50256;  // GPT-2's token, which Python assumes

// Calls visit(name, field) for each field, in the order of declaration.
template <typename Config, typename Visit> void for_each_field(Config& config, const Visit& visit) {
  visit("vocab_size", config.vocab_size);
  visit("n_positions", config.n_positions);
  visit("n_embd", config.n_embd);
  visit("n_layer", config.n_layer);
  visit("n_head", config.n_head);
  visit("n_inner", config.n_inner);
  visit("embd_pdrop", config.embd_pdrop);
  visit("attn_pdrop", config.attn_pdrop);
  visit("resid_pdrop", config.resid_pdrop);
  visit("layer_norm_epsilon", config.layer_norm_epsilon);
  visit("initializer_range", config.initializer_range);
  visit("tie_word_embeddings", config.tie_word_embeddings);
}

ConfigJson parse_config(const std::string& path) {
  const std::uint64_t size = PlainFile(path).size();
  if (size > MAX_CONFIG_BYTES)
    throw FormatError(
        str("GPT-2 config ", in_quotes(path), " has ", size, " bytes, more than any config.json"));
  ConfigJson json =
      ConfigJson::parse(read_plain_file(path), /*callback=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    throw FormatError(str("GPT-2 config ", in_quotes(path), " is no JSON object; expected a config.json"));
  return json;
}

// A field that the file lacks, or has as null, keeps its value.
template <typename T>
void read_field(const ConfigJson& json, const char* name, T& field, const std::string& path) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return;
  const bool fits = std::is_same_v<T, bool>   ? found->is_boolean()
                    : std::is_integral_v<T>   ? found->is_number_integer()
                    : std::is_arithmetic_v<T> ? found->is_number()
                                              : found->is_string();
  if (!fits)
    throw FormatError(str("GPT-2 config ", in_quotes(path), ": ", name, " is ", printable(found->dump()),
                          ", which has another type than expected"));
  field = found->template get<T>();
}

// Refuses models that have the same names but would give other logits.
void refuse_other_formulas(const ConfigJson& json, const std::string& path) {
  const auto refuse = [&](const char* name, const auto& value, const char* expected) {
    throw InvalidArgument(str("GPT-2 config ", in_quotes(path), ": ", name, " is ", value, ", expected ",
                              expected, "; this model computes nothing else"));
  };
  std::string model_type = "gpt2", activation = "gelu_new";
  read_field(json, "model_type", model_type, path);
  read_field(json, "activation_function", activation, path);
  if (model_type != "gpt2") refuse("model_type", in_quotes(model_type), "\"gpt2\"");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    refuse("activation_function", in_quotes(activation), "\"gelu_new\"");
  bool scales = true, scales_by_layer = false, crosses = false;
  read_field(json, "scale_attn_weights", scales, path);
  read_field(json, "scale_attn_by_inverse_layer_idx", scales_by_layer, path);
  read_field(json, "add_cross_attention", crosses, path);
  if (!scales) refuse("scale_attn_weights", "false", "true");
  if (scales_by_layer) refuse("scale_attn_by_inverse_layer_idx", "true", "false");
  if (crosses) refuse("add_cross_attention", "true", "false");
}

}  // namespace

std::int64_t GPT2Config::parameters_of_block() const {
  const std::int64_t e = n_embd, inner = inner_size();
  const std::int64_t layer_norms = 2 * (e + e);
  const std::int64_t attention = (e * 3 * e + 3 * e) + (e * e + e);
  const std::int64_t mlp = (e * inner + inner) + (inner * e + e);
  return layer_norms + attention + mlp;
}

std::int64_t GPT2Config::parameter_count() const {
  const std::int64_t embeddings = (vocab_size + n_positions) * n_embd;
  const std::int64_t output = tie_word_embeddings ? 0 : vocab_size * n_embd;
  return embeddings + n_layer * parameters_of_block() + 2 * n_embd + output;
}

void GPT2Config::check() const {
  std::string problems;
  const auto expect = [&](bool is_right, const char* name, auto value, const std::string& expected) {
    if (!is_right)
      problems += str(problems.empty() ? "" : "; ", name, " is ", value, ", expected ", expected);
  };
  for_each_field(*this, [&](const char* name, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    const bool is_inner = &field == static_cast<const void*>(&n_inner);
    if constexpr (std::is_same_v<Field, std::int64_t>)
      expect(field >= (is_inner ? 0 : 1), name, field, is_inner ? "0 or more" : "1 or more");
  });
  for (const auto& [name, probability] :
       {std::pair{"embd_pdrop", embd_pdrop}, {"attn_pdrop", attn_pdrop}, {"resid_pdrop", resid_pdrop}})
    expect(probability >= 0 && probability <= 1, name, probability, "0 to 1");
  expect(layer_norm_epsilon > 0, "layer_norm_epsilon", layer_norm_epsilon, "more than 0");
  expect(initializer_range >= 0, "initializer_range", initializer_range, "0 or more");
  if (n_head > 0 && n_embd > 0)
    expect(n_embd % n_head == 0, "n_embd", n_embd, str("a multiple of n_head, which is ", n_head));
  if (!problems.empty()) throw InvalidArgument(str("GPT2Config: ", problems));
}

GPT2Config read_gpt2_config(const std::string& path) {
  const ConfigJson json = parse_config(path);
  refuse_other_formulas(json, path);
  GPT2Config config;
  for_each_field(config, [&](const char* name, auto& field) { read_field(json, name, field, path); });
  config.check();
  return config;
}

void write_gpt2_config(const GPT2Config& config, const std::string& path) {
  ConfigJson json = {
      {"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}, {"activation_function", "gelu_new"}};
  for_each_field(config, [&](const char* name, const auto& field) { json[name] = field; });
  if (config.n_inner == 0) json["n_inner"] = nullptr;  // Hugging Face's form of 4 * n_embd
  if (config.vocab_size <= END_OF_TEXT) json["bos_token_id"] = json["eos_token_id"] = nullptr;
  const std::string text = json.dump(2) + "\n";
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace lockstep::models
