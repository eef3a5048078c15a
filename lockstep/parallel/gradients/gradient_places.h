// GradientPlaces: predicts which tensors of a backward will be gradients, so that they can be made in their
// buckets.
//
// Autograd makes a gradient as it makes any tensor, among others of the same size: gradients of activations,
// and temporary tensors of convolutions. But the same model does the same at every step. So one backward is
// watched. It shows, for every gradient, how many tensors of its size are made before it. From the next
// backward on, the gradient's place is offered to exactly that tensor (tensor/lent_places.h).
//
//             a backward that was watched             a gradient was made elsewhere,
//             has ended                               or something else in its place
//   WATCHING ────────────────────────▶ OFFERING ──────────────────────────────────────▶ WATCHING, at most
//                                                                                       twice; then OFF
//
// A backward that differs from the watched one costs a copy of each gradient, but never a wrong value,
// because the BucketStore checks what lies in a place. There are no offers for gradients below
// BlockCache::SMALLEST bytes, because copying them costs little. Gradients made before begin_pass() (of the
// layer that autograd visits first) cannot have an offer.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/parallel/gradients/gradient_slot.h"

namespace lockstep {

class GradientPlaces {
 public:
  GradientPlaces() = default;
  GradientPlaces(const GradientPlaces&) = delete;
  GradientPlaces& operator=(const GradientPlaces&) = delete;
  ~GradientPlaces() { end_pass(); }

  // A backward begins on this thread: watches it, or makes offers. `slots` are those of all parameters, by
  // index.
  void begin_pass(const std::vector<const GradientSlot*>& slots);
  // The backward has ended, or an exception left it. Does nothing a second time.
  void end_pass();
  // The gradient of parameter `index` has arrived. Called before the slot takes it.
  void note(std::size_t index, const GradientSlot& slot);
  // The gradient of parameter `index` had to be copied into its place.
  void missed(std::size_t index);
  // Another tensor was made in a gradient's place. There are no more offers in this backward.
  void mistaken();

 private:
  enum class State { WATCHING, OFFERING, OFF };
  struct Known {
    std::size_t parameter;
    std::size_t number;  // number of tensors of its size that are made before it
  };

  State state_ = State::WATCHING;
  bool is_in_pass_ = false;
  bool was_wrong_ = false;  // in this backward
  int watched_ = 0;         // number of watched backwards
  std::vector<Known> known_;
};

}  // namespace lockstep
