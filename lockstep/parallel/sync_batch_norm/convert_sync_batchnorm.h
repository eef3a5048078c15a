// convert_sync_batchnorm: makes the BatchNorm layers of a model normalise over the batches of all ranks
// (sync_batch_norm.h).
//
//   Net net;  // with torch::nn::BatchNorm2d members, in any container
//   dist::convert_sync_batchnorm(*net);  // or: net = dist::convert_sync_batchnorm(net);
//   dist::DistributedDataParallel ddp(net);
//
// In place    Python puts a new layer into the tree. In C++ a model calls its layers through typed members,
//             which nobody but the model can replace. So here the layers stay, with parameters, buffers,
//             options and names. Their forward in training mode becomes SyncBatchNorm's. An optimiser made
//             before stays valid. print() and state dicts do not change. It works in Sequential, ModuleList,
//             ModuleDict, AnyModule and for members.
// What        Every torch::nn::BatchNorm1d, BatchNorm2d and BatchNorm3d in `module` and below it, once, and
//             classes derived from these. InstanceNorm, GroupNorm and LayerNorm do not depend on the batch. A
//             program's own layer that calls at::batch_norm with tensors of its own is not found. Such a
//             layer can call sync_batch_norm().
// How         The first call adds a kernel to the operator aten::batch_norm of this process, as any extension
//             may. The kernel recognises converted layers by their running_mean or weight, and passes all
//             other calls on. to(), load() and load_state_dict() keep these tensors, and so the conversion.
//             clone() makes a new, unconverted layer.
// Limits      libtorch itself refuses a rank's batch with one value per channel (one sample, no spatial
//             dimensions) before the kernel runs; SyncBatchNorm accepts it. CPU and CUDA; on a GPU the group
//             must be one over nccl.
// Collective  The call itself is not. From now on forward and backward are, on every rank of process_group
//             (default: world()). Converting again changes the group.
// Fails       InvalidArgument: `module` itself is a BatchNorm that no shared_ptr or ModuleHolder holds; a
//             process outside process_group. Messages about a layer name it as `module` does.
#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <cstddef>
#include <optional>

#include "lockstep/comm/process_group.h"

namespace lockstep {

// Returns the number of converted layers.
std::size_t convert_sync_batchnorm(torch::nn::Module& module,
                                   const std::optional<ProcessGroup>& process_group = {});

// For a ModuleHolder or a shared_ptr. Returns it, so that Python's way of writing works.
template <typename Pointer>
requires(!std::derived_from<Pointer, torch::nn::Module> && requires(Pointer & pointer) {
  { *pointer } -> std::convertible_to<torch::nn::Module&>;
}) Pointer convert_sync_batchnorm(Pointer module, const std::optional<ProcessGroup>& process_group = {}) {
  convert_sync_batchnorm(static_cast<torch::nn::Module&>(*module), process_group);
  return module;
}

}  // namespace lockstep
