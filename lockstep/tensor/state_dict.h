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
// Files       the ending decides: .safetensors, or .pt and .pth for torch.load. Written whole or not at all:
//             on any failure the old file stays. Tensors on other devices are saved as CPU tensors.
// Ties        tensors that share memory (tied weights, views) are shared again after torch.load of a .pt
//             file; a .safetensors file holds each under its own name, in full.
// Collective  none of these functions: they concern the calling rank alone.
// Fails       SystemError: the file cannot be read or written. FormatError: it is broken. InvalidArgument:
//             another ending, a dtype that the format lacks, a sparse or quantised tensor, a file that does
//             not fit the model.
#pragma once

#include <string>
#include <vector>

#include "lockstep/tensor/named_tensors.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

// Parameters and buffers themselves, no copies; undefined ones are left out, shared ones come under each of
// their names.
NamedTensors state_dict(const torch::nn::Module& module);

void save_state_dict(const torch::nn::Module& module, const std::string& path);
void save_state_dict(const NamedTensors& tensors, const std::string& path);

struct LoadStateDictOptions {
  bool strict = true;  // names that are missing or left over are an error
};

struct LoadStateDictResult {
  std::vector<std::string> missing;     // names of the model that the file lacks; they keep their values
  std::vector<std::string> unexpected;  // names of the file that the model lacks
};

// Copies the values of a file, of any kind that load_tensors() reads, into the model, converting dtypes as
// Python's load_state_dict does. One "module." prefix on every name, as Python's DistributedDataParallel
// writes, is stripped. A name that the file lacks counts as present when another name of the same tensor
// (tied weights) is there. Throws InvalidArgument, naming all that does not fit (shapes also without
// `strict`), before any value is changed.
LoadStateDictResult load_state_dict(torch::nn::Module& module, const std::string& path,
                                    const LoadStateDictOptions& options = {});
LoadStateDictResult load_state_dict(const NamedTensors& tensors, const std::string& path,
                                    const LoadStateDictOptions& options = {});

// All tensors of a file, sorted by name. It ends in .safetensors; in .safetensors.index.json, as Hugging Face
// names the index of a model in several files, which lie beside it; or in .pt or .pth, which torch.save wrote
// of a state dict or of nested dicts and lists (formats/pt_reader.h has the names and what is refused).
// Tensors of one storage of a .pt file share it. Or `path` is a folder of Python's
// torch.distributed.checkpoint (formats/dcp_reader.h); what is no tensor there is left out.
NamedTensors load_tensors(const std::string& path);

}  // namespace lockstep
