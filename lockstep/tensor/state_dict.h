// Saves and loads the values of a model, in files that Python reads and writes.
//
//   if (dist::get_rank() == 0) dist::save_state_dict(*net, "model.safetensors");
//   dist::load_state_dict(*net, "model.safetensors");
//
//   state = torch.load("model.pt", weights_only=True)                 # Python: a dict of tensors
//   state = safetensors.torch.load_file("model.safetensors")
//   model.load_state_dict(state)
//
// Names are those of Python's Module.state_dict(), in its order: a module's parameters, its buffers, then its
// children's.
//
// Files       The ending decides: .safetensors, or .pt and .pth for torch.load. A file is written whole or
//             not at all: on any failure the old file stays. Tensors on other devices are saved as CPU
//             tensors.
// Ties        Tensors that share memory (tied weights, views) share it again after torch.load of a .pt file.
//             A .safetensors file holds each of them in full, under its own name.
// Collective  None of these functions is: they concern the calling rank alone.
// Fails       SystemError: the file cannot be read or written. FormatError: the file is broken.
//             InvalidArgument: another ending, a dtype that the format lacks, a sparse or quantised tensor, a
//             file that does not fit the model, a tensor that is in parts on several ranks (stage 3 of
//             ShardedDataParallel).
#pragma once

#include <string>
#include <vector>

#include "lockstep/tensor/named_tensors.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

// Returns the parameters and buffers themselves, not copies. Undefined ones are left out. A shared tensor
// comes under each of its names.
NamedTensors state_dict(const torch::nn::Module& module);

void save_state_dict(const torch::nn::Module& module, const std::string& path);
void save_state_dict(const NamedTensors& tensors, const std::string& path);

struct LoadStateDictOptions {
  bool strict = true;  // a missing or unexpected name is an error
};

struct LoadStateDictResult {
  std::vector<std::string> missing;     // names of the model that the file lacks; they keep their values
  std::vector<std::string> unexpected;  // names of the file that the model lacks
};

// Copies the values of a file, of any kind that load_tensors() reads, into the model. Converts dtypes as
// Python's load_state_dict does. Strips one "module." prefix if every name has it, as in files of Python's
// DistributedDataParallel. A name that the file lacks counts as present if the file has another name of the
// same tensor (tied weights). Throws InvalidArgument before any value is changed, and names all mismatches
// (of shapes also without `strict`).
LoadStateDictResult load_state_dict(torch::nn::Module& module, const std::string& path,
                                    const LoadStateDictOptions& options = {});
LoadStateDictResult load_state_dict(const NamedTensors& tensors, const std::string& path,
                                    const LoadStateDictOptions& options = {});

// Returns all tensors of a file, sorted by name. The path ends in
// * .safetensors;
// * .safetensors.index.json: Hugging Face's index of a model in several files, which lie beside it;
// * .pt or .pth: torch.save wrote a state dict, or nested dicts and lists (formats/pt_reader.h has the names
//   and what is refused). Tensors of one storage share it.
// Or `path` is a folder of Python's torch.distributed.checkpoint (formats/dcp_reader.h). Its entries that are
// not tensors are left out.
NamedTensors load_tensors(const std::string& path);

}  // namespace lockstep
