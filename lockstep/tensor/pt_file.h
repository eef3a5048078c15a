// Writes tensors as a .pt file that Python's torch.load(path, weights_only=True) reads as a dict. Reads files
// in which torch.save wrote a dict.
//
//   write_pt_file("model.pt", {{"weight", w}});
//   const NamedTensors tensors = read_pt_file("model.pt");
//
// libtorch's own torch::save writes TorchScript archives, and torch::pickle_save writes type tags.
// weights_only refuses both. Tensors of one storage share it in Python too, and again when they are read.
//
// Fails       as save_state_dict() and load_tensors() of state_dict.h, which programs call.
#pragma once

#include <string>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

void write_pt_file(const std::string& path, const NamedTensors& tensors);
NamedTensors read_pt_file(const std::string& path);

}  // namespace lockstep
