#include "lockstep/tensor/state_dict.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/safetensors.h"
#include "lockstep/tensor/pt_file.h"

namespace lockstep {
namespace {

constexpr std::string_view WRAPPER_PREFIX = "module.";
constexpr std::size_t MOST_NAMES_SHOWN = 10;

constexpr std::array DTYPES = std::to_array<std::pair<at::ScalarType, std::string_view>>({
    {at::kDouble, "F64"},
    {at::kFloat, "F32"},
    {at::kHalf, "F16"},
    {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},
    {at::kInt, "I32"},
    {at::kShort, "I16"},
    {at::kChar, "I8"},
    {at::kUInt64, "U64"},
    {at::kUInt32, "U32"},
    {at::kUInt16, "U16"},
    {at::kByte, "U8"},
    {at::kBool, "BOOL"},
    {at::kComplexFloat, "C64"},
    {at::kFloat8_e4m3fn, "F8_E4M3"},
    {at::kFloat8_e5m2, "F8_E5M2"},
    {at::kFloat8_e8m0fnu, "F8_E8M0"},
    {at::kFloat8_e4m3fnuz, "F8_E4M3FNUZ"},
    {at::kFloat8_e5m2fnuz, "F8_E5M2FNUZ"},
});

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
    const auto* const row =
        std::find_if(DTYPES.begin(), DTYPES.end(),
                     [&, type = tensor.scalar_type()](const auto& entry) { return entry.first == type; });
    if (row == DTYPES.end())
      throw InvalidArgument(str("save_state_dict: tensor ", in_quotes(name), " is ",
                                toString(tensor.scalar_type()),
                                ", which .safetensors files cannot hold; save it as .pt"));
    kept.push_back(tensor.detach().resolve_conj().resolve_neg().cpu().contiguous());
    sources.push_back({name,
                       std::string(row->second),
                       kept.back().sizes().vec(),
                       {static_cast<const std::byte*>(kept.back().const_data_ptr()), kept.back().nbytes()}});
  }
  write_safetensors(path, std::move(sources));
}

std::string name_list(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), MOST_NAMES_SHOWN); ++i)
    list += str(i > 0 ? ", " : "", in_quotes(names[i]));
  return names.size() > MOST_NAMES_SHOWN ? str(list, " and ", names.size() - MOST_NAMES_SHOWN, " more")
                                         : list;
}

bool has_prefix(const std::string& name) { return name.starts_with(WRAPPER_PREFIX); }

// The file's tensors by the model's names.
std::map<std::string, at::Tensor> values_for(const NamedTensors& targets, const std::string& path) {
  NamedTensors values = load_tensors(path);
  const auto is_prefixed = [](const auto& item) { return has_prefix(item.first); };
  const bool strip = std::all_of(values.begin(), values.end(), is_prefixed) &&
                     std::none_of(targets.begin(), targets.end(), is_prefixed);
  std::map<std::string, at::Tensor> named;
  for (auto& [name, value] : values)
    named.emplace(strip ? name.substr(WRAPPER_PREFIX.size()) : name, std::move(value));
  return named;
}

using MemoryOfTensor = std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>>;
MemoryOfTensor place_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.sizes().vec(), tensor.strides().vec()};
}

LoadStateDictResult compare_names(const NamedTensors& targets,
                                  const std::map<std::string, at::Tensor>& values) {
  std::map<MemoryOfTensor, bool> is_filled;
  std::map<std::string, bool> is_known;
  for (const auto& [name, tensor] : targets) {
    is_known[name] = true;
    is_filled[place_of(tensor)] |= values.contains(name);
  }
  LoadStateDictResult result;
  for (const auto& [name, tensor] : targets)
    if (!is_filled[place_of(tensor)]) result.missing.push_back(name);
  for (const auto& [name, value] : values)
    if (!is_known.contains(name)) result.unexpected.push_back(name);
  return result;
}

std::vector<std::string> shape_differences(const NamedTensors& targets,
                                           const std::map<std::string, at::Tensor>& values) {
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : targets) {
    const auto found = values.find(name);
    if (found != values.end() && found->second.sizes() != tensor.sizes())
      differences.push_back(lockstep::str(name, " has shape ", found->second.sizes(), " in the file and ",
                                          tensor.sizes(), " in the model"));
  }
  return differences;
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
  }
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".safetensors") return save_safetensors(tensors, path);
  if (ending == ".pt" || ending == ".pth") return write_pt_file(path, tensors);
  throw InvalidArgument(str("save_state_dict: ", in_quotes(path), " must end in .safetensors, .pt or .pth"));
}

NamedTensors load_tensors(const std::string& path) {
  if (std::filesystem::path(path).extension() != ".safetensors")
    throw InvalidArgument(
        str("load_state_dict: ", in_quotes(path),
            " must end in .safetensors; convert other files in Python with safetensors.torch.save_file"));
  SafetensorsFile file(path);
  NamedTensors tensors;
  for (const SafetensorsTensor& stored : file.tensors()) {
    const auto* const row = std::find_if(DTYPES.begin(), DTYPES.end(),
                                         [&](const auto& entry) { return entry.second == stored.dtype; });
    if (row == DTYPES.end())
      throw InternalError(str("load_tensors: no dtype of libtorch for ", stored.dtype));
    const at::Tensor tensor = at::empty(stored.shape, at::TensorOptions(row->first));
    file.read(stored, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
    tensors.emplace_back(stored.name, tensor);
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
  const std::map<std::string, at::Tensor> values = values_for(tensors, path);
  LoadStateDictResult result = compare_names(tensors, values);
  std::string problems;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) problems += str(problems.empty() ? "" : "; ", what, name_list(names));
  };
  if (options.strict) {
    add("missing ", result.missing);
    add("unexpected ", result.unexpected);
  }
  add("different: ", shape_differences(tensors, values));
  if (!problems.empty())
    throw InvalidArgument(str("load_state_dict: ", in_quotes(path), " does not fit the model: ", problems));

  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors)
    if (const auto found = values.find(name); found != values.end()) tensor.copy_(found->second);
  return result;
}

}  // namespace lockstep
