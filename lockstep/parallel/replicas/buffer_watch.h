// Notices that a model uses another tensor than the buffer that was registered: after `running = running + 1`
// the member is a new tensor, and the one that DDP sends round is no longer the model's.
//
//   BufferWatch watch(net.get());
//   watch.forward_begins(buffers);
//   if (const auto change = watch.change(buffers)) DDP_WRAPPER.refuse(group, *change);
//
// A member cannot be looked at from outside, but a tensor knows how many refer to it: one to which the model
// had a reference of its own when the first forward began, and to which only registry and wrapper refer now,
// has been let go. A buffer that was never held beside its registry is not judged.
//
// Cost  of forward_begins(): one comparison after the first.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class BufferWatch {
 public:
  // `module` is null for a list of tensors; it outlives the watch.
  explicit BufferWatch(const torch::nn::Module* module) : module_(module) {}

  // `buffers` is the wrapper's list, which holds each of its tensors once per name; nothing else of the
  // wrapper does.
  void forward_begins(const NamedTensors& buffers);
  // What changed, as a sentence.
  std::optional<std::string> change(const NamedTensors& buffers) const;

 private:
  using References = std::unordered_map<const void*, std::size_t>;  // by tensor
  References own_references(const NamedTensors& buffers) const;

  const torch::nn::Module* module_;
  bool has_begun_ = false;
  std::unordered_set<const void*> held_;  // by the model, when the first forward began
};

}  // namespace lockstep
