// A checkpoint's tensors in one file, as other programs read them.
//
//   CheckpointReader reader("runs/7/step-000000001200");
//   convert_checkpoint(reader, "model", "model.safetensors");     // "fc1.weight", not "model.fc1.weight"
//   convert_checkpoint(reader, "", "everything.pt");              // all items, under their full names
//
// The ending decides: .safetensors, or .pt and .pth, which torch.load(weights_only=True) opens. The file
// appears whole or not at all. Only one tensor at a time is in memory. Tensors that belong to a single rank
// are left out.
//
// Returns     the number of tensors written.
// Throws      InvalidArgument: another ending, an item that the checkpoint does not have or that has no
//             tensors, complex128 in a .safetensors file. Otherwise as CheckpointReader and AtomicFile.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/formats/checkpoint_reader.h"

namespace LOCKSTEP_PUBLIC lockstep {

std::size_t convert_checkpoint(CheckpointReader& reader, const std::string& item, const std::string& output);

}  // namespace lockstep
