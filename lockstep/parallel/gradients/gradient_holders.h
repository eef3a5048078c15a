// GradientHolders: whether somebody besides the parameters holds a .grad, who then keeps it over what DDP
// does.
//
//   GradientHolders holders(parameters);
//   holders.begin_pass();
//   if (holders.hold(parameter.grad(), incoming)) ...      // a user's own tensor, or a view of one
//
// Autograd gives each gradient a tensor and a storage of its own, unless it takes over `incoming`, which is
// then still there. A storage in which only .grad of these parameters lie, as the bucket of a wrapper that is
// gone, is nobody else's.
//
// Buckets are the other case: kept_buckets() finds out who still holds what was a .grad.
//
// Cost  of a gradient that nobody holds: some comparisons. With holders, one walk over all parameters per
//       pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "lockstep/parallel/gradients/gradient_slot.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// Of these buckets, slot i lying in flats[bucket_of[i]], those in which somebody keeps the .grad of an
// earlier step, or a view of it, that zero_grad() has taken from its parameter. A .grad that is still the
// parameter's is added to in place, as without DDP, whoever holds it.
std::vector<std::size_t> kept_buckets(const std::vector<at::Tensor>& flats,
                                      const std::vector<const GradientSlot*>& slots,
                                      const std::vector<std::size_t>& bucket_of);

class GradientHolders {
 public:
  explicit GradientHolders(const NamedTensors& parameters);

  void begin_pass() { grads_in_.clear(); }
  // `incoming`: what autograd has accumulated into `grad` just now, or undefined.
  bool hold(const at::Tensor& grad, const at::Tensor& incoming);

 private:
  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, std::size_t> grads_in_;  // by storage, of this pass; empty: not counted yet
};

}  // namespace lockstep
