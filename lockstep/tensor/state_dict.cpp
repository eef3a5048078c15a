#include "lockstep/tensor/state_dict.h"

#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/dcp_reader.h"
#include "lockstep/formats/safetensors.h"
#include "lockstep/formats/safetensors_index.h"
#include "lockstep/tensor/copy_state_dict.h"
#include "lockstep/tensor/dtype_words.h"
#include "lockstep/tensor/parted_memory.h"
#include "lockstep/tensor/pt_file.h"

namespace lockstep {
namespace {

constexpr std::string_view INDEX_ENDING = ".safetensors.index.json";

void collect(const torch::nn::Module& module, const std::string& prefix, NamedTensors& tensors) {
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    tensors.emplace_back(prefix + item.key(), item.value());
  for (const auto& item : module.named_buffers(/*recurse=*/false))
    tensors.emplace_back(prefix + item.key(), item.value());
  for (const auto& item : module.named_children()) collect(*item.value(), prefix + item.key() + ".", tensors);
}

void save_safetensors(const NamedTensors& tensors, const std::string& path) {
  std::vector<at::Tensor> kept;  // owns the bytes until they are written
  std::vector<SafetensorsSource> sources;
  for (const auto& [name, tensor] : tensors) {
    const std::string_view word = dtype_word(tensor.scalar_type());
    if (safetensors_dtype_size(word) == 0)
      throw InvalidArgument(str("save_state_dict: tensor ", in_quotes(name), " is ",
                                toString(tensor.scalar_type()),
                                ", which .safetensors files cannot hold; save it as .pt"));
    kept.push_back(tensor.detach().resolve_conj().resolve_neg().cpu().contiguous());
    sources.push_back({name,
                       std::string(word),
                       kept.back().sizes().vec(),
                       {static_cast<const std::byte*>(kept.back().const_data_ptr()), kept.back().nbytes()}});
  }
  write_safetensors(path, sources);
}

at::Tensor load(const SafetensorsFile& file, const SafetensorsTensor& stored) {
  const at::Tensor tensor = at::empty(stored.shape, at::TensorOptions(dtype_of_word(stored.dtype)));
  file.read(stored, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  return tensor;
}

// Loads the tensors of a model that lies in several files.
NamedTensors load_index(const std::string& path) {
  NamedTensors tensors;
  for (const auto& [shard, names] : read_safetensors_index(path)) {
    const SafetensorsFile file(shard);
    std::map<std::string_view, const SafetensorsTensor*> stored;
    for (const SafetensorsTensor& tensor : file.tensors()) stored.emplace(tensor.name, &tensor);
    for (const std::string& name : names) {
      const auto found = stored.find(name);
      if (found == stored.end())
        throw FormatError(str("index ", in_quotes(path), " of safetensors files: tensor ", in_quotes(name),
                              " is not in ", in_quotes(shard)));
      tensors.emplace_back(name, load(file, *found->second));
    }
  }
  return tensors;
}

// Loads the tensors of a folder of torch.distributed.checkpoint.
NamedTensors load_dcp(const std::string& path) {
  NamedTensors tensors;
  DcpReader reader(path);
  for (const DcpTensor& stored : reader.tensors()) {
    const std::vector<std::byte> bytes = reader.read(stored);
    const at::Tensor tensor = at::empty(stored.shape, at::TensorOptions(dtype_of_word(stored.dtype)));
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(tensor.mutable_data_ptr()));
    tensors.emplace_back(stored.name, tensor);
  }
  return tensors;
}

}  // namespace

NamedTensors state_dict(const torch::nn::Module& module) {
  NamedTensors tensors;
  collect(module, "", tensors);
  return tensors;
}

void save_state_dict(const torch::nn::Module& module, const std::string& path) {
  save_state_dict(state_dict(module), path);
}

void save_state_dict(const NamedTensors& tensors, const std::string& path) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_meta())
      throw InvalidArgument(
          str("save_state_dict: tensor ", in_quotes(name),
              " is undefined, sparse, quantised or without data; only dense tensors can be saved"));
    refuse_parted("save_state_dict", name, tensor);
  }
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".safetensors") return save_safetensors(tensors, path);
  if (ending == ".pt" || ending == ".pth") return write_pt_file(path, tensors);
  throw InvalidArgument(str("save_state_dict: ", in_quotes(path), " must end in .safetensors, .pt or .pth"));
}

NamedTensors load_tensors(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  NamedTensors tensors;
  if (is_dcp_folder(path)) {
    tensors = load_dcp(path);
  } else if (path.ends_with(INDEX_ENDING)) {
    tensors = load_index(path);
  } else if (ending == ".safetensors") {
    const SafetensorsFile file(path);
    for (const SafetensorsTensor& stored : file.tensors())
      tensors.emplace_back(stored.name, load(file, stored));
  } else if (ending == ".pt" || ending == ".pth") {
    tensors = read_pt_file(path);
  } else {
    throw InvalidArgument(str("load_state_dict: ", in_quotes(path),
                              " must end in .safetensors, .pt, .pth or ", INDEX_ENDING,
                              ", or be a folder of torch.distributed.checkpoint"));
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return tensors;
}

LoadStateDictResult load_state_dict(torch::nn::Module& module, const std::string& path,
                                    const LoadStateDictOptions& options) {
  return load_state_dict(state_dict(module), path, options);
}

LoadStateDictResult load_state_dict(const NamedTensors& tensors, const std::string& path,
                                    const LoadStateDictOptions& options) {
  const bool is_wrapped = std::any_of(tensors.begin(), tensors.end(), [](const auto& item) {
    return item.first.starts_with(WRAPPER_PREFIX);
  });
  NamedTensors values = load_tensors(path);
  if (!is_wrapped) values = without_wrapper_prefix(std::move(values));
  return copy_state_dict(tensors, {values.begin(), values.end()}, str("load_state_dict: ", in_quotes(path)),
                         options);
}

}  // namespace lockstep
