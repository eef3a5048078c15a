// Reads the index of a model that lies in several safetensors files, as Hugging Face writes it:
// {"metadata": {...}, "weight_map": {"name": "model-00001-of-00002.safetensors", ...}}.
//
//   for (const auto& [file, names] : read_safetensors_index("model.safetensors.index.json")) {
//     const SafetensorsFile shard(file);      // beside the index; it holds these names
//   }
//
// Fails       FormatError that names the file: another form of JSON, a name that occurs twice, a file name
//             outside of the index's own folder. SystemError: it cannot be read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Path of each file, and the names of the tensors that are read from it.
using SafetensorsIndex = std::map<std::string, std::vector<std::string>>;

SafetensorsIndex read_safetensors_index(const std::string& path);

}  // namespace lockstep
