// GradientHolders: whether a .grad has a holder besides the parameter. Such a holder keeps the tensor,
// whatever DDP does.
//
//   GradientHolders holders(parameters);
//   holders.begin_pass();
//   if (holders.hold(parameter.grad(), incoming)) ...      // a user's own tensor, or a view of one
//
// Autograd gives each new gradient a tensor and a storage of its own. The exception is a gradient that takes
// over `incoming`, which still exists then. A storage that holds only the .grad of these parameters, such as
// the bucket of a destroyed wrapper, has no other holder.
//
// Buckets need another check: kept_buckets() finds those in which some tensor that was a .grad is still held.
//
// Cost  of a gradient without holders: some comparisons. With holders, one walk over all parameters per pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "lockstep/parallel/gradients/gradient_slot.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// Slot i lies in flats[bucket_of[i]]. Returns the buckets in which the program keeps the .grad of an earlier
// step, or a view of it, that zero_grad() has taken from its parameter. A .grad that is still the parameter's
// does not count. Without DDP, too, autograd would add to it in place.
std::vector<std::size_t> kept_buckets(const std::vector<at::Tensor>& flats,
                                      const std::vector<const GradientSlot*>& slots,
                                      const std::vector<std::size_t>& bucket_of);

class GradientHolders {
 public:
  explicit GradientHolders(const NamedTensors& parameters);

  void begin_pass() { grads_in_.clear(); }
  // `incoming` is the gradient that autograd has just accumulated into `grad`, or undefined.
  bool hold(const at::Tensor& grad, const at::Tensor& incoming);

 private:
  std::vector<at::Tensor> parameters_;
  // by storage, in this pass; empty if not counted yet
  std::unordered_map<const void*, std::size_t> grads_in_;
};

}  // namespace lockstep
