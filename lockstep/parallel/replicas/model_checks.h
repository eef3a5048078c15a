// The checks of a model before it is wrapped. Each refusal is an InvalidArgument that names the tensor.
//
//   const NamedTensors trained =
//       check_model(DDP_WRAPPER, parameters, buffers, options.device_ids, sparse, group);
//
// The checks run after the ranks have compared their models, so that all ranks refuse alike.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// A tensor registered under several names counts once, under the first.
NamedTensors distinct(const NamedTensors& tensors);

// "SimpleCNN" of (anonymous namespace)::SimpleCNNImpl.
std::string name_of_model(const torch::nn::Module& module);

// Returns the trained parameters, each once.
NamedTensors check_model(const Wrapper& wrapper, const NamedTensors& parameters, const NamedTensors& buffers,
                         const std::vector<int>& device_ids, const std::vector<std::string>& sparse,
                         const ProcessGroup& group);

// Throws if one of them was made by meta_init() and has no memory yet: only ShardedDataParallel places it.
void refuse_deferred(const Wrapper& wrapper, const NamedTensors& tensors);

// Throws unless all of them already are on that device and have that dtype.
void refuse_move(const Wrapper& wrapper, const NamedTensors& tensors, const std::optional<at::Device>& device,
                 const std::optional<at::ScalarType>& dtype);

}  // namespace lockstep
