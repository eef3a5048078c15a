// convert_sync_batchnorm: makes the BatchNorm layers of a model normalise over the batches of all ranks
// (sync_batch_norm.h).
//
//   Net net;  // with torch::nn::BatchNorm2d members, in any container
//   dist::convert_sync_batchnorm(*net);  // or: net = dist::convert_sync_batchnorm(net);
//   dist::DistributedDataParallel ddp(net);
//
// In place    Python puts a new layer into the tree. In C++ a model calls its layers through typed members,
//             which nobody but the model can replace; so here the layers stay, with parameters, buffers,
//             options and names, and from now on their forward in training mode is SyncBatchNorm's. An
//             optimiser made before stays valid, print() and state dicts do not change. Sequential,
//             ModuleList, ModuleDict, AnyModule and members alike.
// What        every torch::nn::BatchNorm1d, BatchNorm2d and BatchNorm3d of `module` and below it, once; also
//             classes derived from these. InstanceNorm, GroupNorm, LayerNorm know no batch. A layer of one's
//             own that calls at::batch_norm with tensors of its own is not found: let it call
//             sync_batch_norm().
// How         the first call adds a kernel to the operator aten::batch_norm of this process (as any extension
//             may) which recognises the layers by their running_mean or weight and passes everything else on.
//             So it holds for the tensors these are: to(), load() and load_state_dict() keep them; clone()
//             makes a new, unconverted layer.
// Limits      libtorch itself refuses a rank's own batch with one value per channel (one sample, no spatial
//             dimensions) before this function could know: SyncBatchNorm takes it. CPU and CUDA; on a GPU the
//             group is one over nccl.
// Collective  no, but forward and backward are from now on: on every rank of process_group, whose default is
//             world(). Converting again changes the group.
// Fails       InvalidArgument: `module` itself is a BatchNorm that no shared_ptr or ModuleHolder holds; a
//             process outside process_group. Messages about a layer have its name in `module`.
#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <cstddef>
#include <optional>

#include "lockstep/comm/process_group.h"

namespace lockstep {

// Returns how many layers were converted.
std::size_t convert_sync_batchnorm(torch::nn::Module& module,
                                   const std::optional<ProcessGroup>& process_group = {});

// For a ModuleHolder or a shared_ptr: returns it, so that Python's way of writing works.
template <typename Pointer>
requires(!std::derived_from<Pointer, torch::nn::Module> && requires(Pointer & pointer) {
  { *pointer } -> std::convertible_to<torch::nn::Module&>;
}) Pointer convert_sync_batchnorm(Pointer module, const std::optional<ProcessGroup>& process_group = {}) {
  convert_sync_batchnorm(static_cast<torch::nn::Module&>(*module), process_group);
  return module;
}

}  // namespace lockstep
