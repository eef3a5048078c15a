#include "lockstep/models/gpt2_files.h"

#include <ATen/ops/allclose.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/dcp_reader.h"
#include "lockstep/os/folder.h"
#include "lockstep/tensor/copy_state_dict.h"
#include "lockstep/tensor/state_dict.h"

namespace lockstep::models {
namespace {

using Values = std::map<std::string, at::Tensor>;

constexpr const char* EMBEDDING = "transformer.wte.weight";
constexpr const char* OUTPUT = "lm_head.weight";

std::string path_in(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

// Returns the file with the weights, or the folder itself if it is one of torch.distributed.checkpoint.
std::string weights_at(const std::string& path) {
  if (!is_folder(path)) return path;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (is_file(path_in(path, name))) return path_in(path, name);
  if (is_dcp_folder(path)) return path;
  throw InvalidArgument(str("load_gpt2: the folder ", in_quotes(path),
                            " holds neither model.safetensors nor model.safetensors.index.json"));
}

bool is_causal_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

std::string full_name(const std::string& name) {
  return name.starts_with("transformer.") || name == OUTPUT ? name : "transformer." + name;
}

// Returns the file's tensors by the model's names.
Values values_by_our_names(const std::string& file) {
  Values values;
  for (auto& [name, value] : without_wrapper_prefix(load_tensors(file))) {
    if (is_causal_mask(name)) continue;
    const std::string ours = full_name(name);
    if (!values.emplace(ours, value).second)
      throw InvalidArgument(str("load_gpt2: ", in_quotes(file), " holds ", in_quotes(ours),
                                " twice, with the prefix \"transformer.\" and without"));
  }
  return values;
}

// A tied model has one tensor for both names.
void untie(Values& values, const std::string& file) {
  const auto output = values.find(OUTPUT);
  if (output == values.end()) return;
  const auto [embedding, is_alone] = values.emplace(EMBEDDING, output->second);
  const at::Tensor &a = embedding->second, b = output->second.to(a.scalar_type());
  if (!is_alone &&
      (a.sizes() != b.sizes() || !at::allclose(a, b, /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true)))
    throw InvalidArgument(
        str("load_gpt2: ", in_quotes(file), " holds other values for ", in_quotes(OUTPUT), " than for ",
            in_quotes(EMBEDDING),
            ", which are one tensor in this model; make it with tie_word_embeddings = false"));
  values.erase(output);
}

}  // namespace

void load_gpt2(GPT2Impl& net, const std::string& path) {
  const std::string file = weights_at(path);
  Values values = values_by_our_names(file);
  if (net.config().tie_word_embeddings) untie(values, file);
  copy_state_dict(state_dict(net), values, str("load_gpt2: ", in_quotes(file)));
}

GPT2 gpt2_from_pretrained(const std::string& folder) {
  GPT2 net(read_gpt2_config(path_in(folder, "config.json")));
  load_gpt2(*net, folder);
  return net;
}

void save_gpt2(const GPT2Impl& net, const std::string& path) {
  NamedTensors tensors = state_dict(net);
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".safetensors") return save_state_dict(tensors, path);
  if (ending == ".pt" || ending == ".pth") {
    if (net.config().tie_word_embeddings) tensors.emplace_back(OUTPUT, net.transformer->wte->weight);
    return save_state_dict(tensors, path);
  }
  make_folders(path);
  write_gpt2_config(net.config(), path_in(path, "config.json"));
  save_state_dict(tensors, path_in(path, "model.safetensors"));
}

}  // namespace lockstep::models
