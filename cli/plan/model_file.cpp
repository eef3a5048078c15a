#include "cli/plan/model_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/safetensors_index.h"
#include "lockstep/os/folder.h"
#include "lockstep/os/plain_file.h"

namespace lockstep::cli {
namespace {

bool is_floating(const SafetensorsTensor& tensor) {
  return tensor.dtype.starts_with('F') || tensor.dtype.starts_with("BF");
}

std::string layer_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

// Returns the index's own number of parameters, which newer versions of Hugging Face's library write.
std::optional<std::uint64_t> total_parameters(const std::string& path) {
  const auto index = nlohmann::json::parse(read_plain_file(path), nullptr, /*allow_exceptions=*/false);
  const auto metadata = index.find("metadata");
  if (metadata == index.end() || !metadata->is_object()) return std::nullopt;
  const auto total = metadata->find("total_parameters");
  if (total == metadata->end() || !total->is_number_unsigned()) return std::nullopt;
  return total->get<std::uint64_t>();
}

// Adds those tensors of a file that the index reads from it.
void add_named_tensors(const std::string& index, const SafetensorsFile& file,
                       const std::vector<std::string>& names, std::vector<SafetensorsTensor>& tensors) {
  std::unordered_set<std::string_view> missing(names.begin(), names.end());
  for (const SafetensorsTensor& tensor : file.tensors())
    if (missing.erase(tensor.name) > 0) tensors.push_back(tensor);
  if (!missing.empty())
    throw FormatError(str("index ", in_quotes(index), " of safetensors files: tensor ",
                          in_quotes(*missing.begin()), " is not in ", in_quotes(file.path())));
}

ModelSize read_sharded_model(const std::string& path) {
  const SafetensorsIndex index = read_safetensors_index(path);
  const bool has_files =
      std::any_of(index.begin(), index.end(), [](const auto& shard) { return is_file(shard.first); });
  if (!has_files)
    if (const auto total = total_parameters(path)) return {.parameters = *total};
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [file, names] : index) add_named_tensors(path, SafetensorsFile(file), names, tensors);
  return size_of_model(tensors);
}

}  // namespace

ModelSize size_of_model(std::span<const SafetensorsTensor> tensors) {
  std::map<std::string, std::uint64_t> layers;
  ModelSize size;
  for (const SafetensorsTensor& tensor : tensors) {
    if (!is_floating(tensor)) continue;
    const std::uint64_t parameters = tensor.size() / safetensors_dtype_size(tensor.dtype);
    size.parameters += parameters;
    layers[layer_of(tensor.name)] += parameters;
  }
  const auto largest = std::max_element(layers.begin(), layers.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest != layers.end()) {
    size.largest = largest->second;
    size.largest_layer = largest->first;
  }
  return size;
}

ModelSize read_model_size(const std::string& path) {
  ModelSize size =
      path.ends_with(".json") ? read_sharded_model(path) : size_of_model(SafetensorsFile(path).tensors());
  if (size.parameters == 0)
    throw FormatError(str("the model ", in_quotes(path), " has no tensor of floating-point numbers"));
  return size;
}

}  // namespace lockstep::cli
