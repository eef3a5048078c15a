// Writes tensors as a .pt file that Python's torch.load(path, weights_only=True) reads as a dict.
//
//   write_pt_file("model.pt", {{"weight", w}});
//
// libtorch's own torch::save writes TorchScript archives and torch::pickle_save writes type tags:
// weights_only refuses both. This is the plain zip form: data.pkl holds an untyped dict whose tensors refer
// to the storages data/0, data/1, ...; tensors of one storage share it in Python too.
//
// Fails       as save_state_dict() of state_dict.h, which is what programs call.
#pragma once

#include <string>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

void write_pt_file(const std::string& path, const NamedTensors& tensors);

}  // namespace lockstep
