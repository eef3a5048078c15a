// copy_state_dict: copies values by name into the tensors of a model, all of them or none. load_state_dict()
// ends with it. So do loaders that know more about the names in a file (models/gpt2_files.h).
//
//   std::map<std::string, at::Tensor> values;
//   for (auto& [name, value] : without_wrapper_prefix(load_tensors(path))) values.emplace(ours(name), value);
//   copy_state_dict(state_dict(net), values, str("load_mine: ", in_quotes(path)));
//
// Fails       InvalidArgument that begins with `source` and names every mismatch, before any value is changed
//             (LoadStateDictOptions).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/state_dict.h"

namespace lockstep {

constexpr std::string_view WRAPPER_PREFIX = "module.";  // Python's DistributedDataParallel writes it

// Takes one WRAPPER_PREFIX off every name, if every name has it.
NamedTensors without_wrapper_prefix(NamedTensors values);

// Converts dtypes. A name without a value counts as present if another name of the same tensor has one.
LoadStateDictResult copy_state_dict(const NamedTensors& targets,
                                    const std::map<std::string, at::Tensor>& values,
                                    const std::string& source, const LoadStateDictOptions& options = {});

}  // namespace lockstep
