// Tensors with their names, in order: the form in which a model travels between modules, files and ranks.
//
//   NamedTensors model = {{"weight", w}, {"bias", b}};
//
// A torch::OrderedDict is one with .pairs(): net.named_parameters().pairs().
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Without their names.
inline std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace lockstep
