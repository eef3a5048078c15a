// BufferWatch: notices that a model no longer uses the buffer that was registered. After `running = running +
// 1` the member is a new tensor, and DDP goes on sending the registered one.
//
//   BufferWatch watch(net.get());
//   watch.forward_begins(buffers);
//   if (const auto change = watch.change(buffers)) DDP_WRAPPER.refuse(group, *change);
//
// A member cannot be looked at from outside, but a tensor knows how many references it has. If the model had
// a reference of its own when the first forward began, and only registry and wrapper refer to the tensor now,
// the model has let it go. A buffer without a reference besides its registry is not judged.
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
  // `module` is null for a list of tensors. It outlives the watch.
  explicit BufferWatch(const torch::nn::Module* module) : module_(module) {}

  // `buffers` is the wrapper's list. It must be the wrapper's only reference to each tensor, once per name.
  void forward_begins(const NamedTensors& buffers);
  // Returns the change as a sentence.
  std::optional<std::string> change(const NamedTensors& buffers) const;

 private:
  using References = std::unordered_map<const void*, std::size_t>;  // by tensor
  References own_references(const NamedTensors& buffers) const;

  const torch::nn::Module* module_;
  bool has_begun_ = false;
  std::unordered_set<const void*> held_;  // the model held a reference to them when the first forward began
};

}  // namespace lockstep
