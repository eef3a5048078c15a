// GradientPlaces: which of the tensors that a backward makes are gradients, so that they can be made in their
// buckets.
//
// Autograd makes a gradient as any tensor, among others of the same size: gradients of activations, and what
// convolutions need for a while. But the same model does the same at every step. One backward is watched,
// which tells of every gradient how many tensors of its size are made before it; from the next on, its place
// is offered to exactly that tensor (tensor/lent_places.h).
//
//             a backward that was watched             a gradient was made elsewhere,
//             has ended                               or something else in its place
//   WATCHING ────────────────────────▶ OFFERING ──────────────────────────────────────▶ WATCHING, at most
//                                                                                       twice; then OFF
//
// A backward that differs from the one that was watched costs a copy of each gradient, never a wrong value:
// the BucketStore looks what is in a place. Gradients below BlockCache::SMALLEST bytes are not worth an
// offer, and those that are made before begin_pass() (of the layer that autograd visits first) cannot have
// one.
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

  // A backward begins on this thread: watches it, or offers. `slots` are all parameters', by index.
  void begin_pass(const std::vector<const GradientSlot*>& slots);
  // It has ended, or was left. Does nothing a second time.
  void end_pass();
  // The gradient of parameter `index` has come; before the slot takes it.
  void note(std::size_t index, const GradientSlot& slot);
  // The gradient of parameter `index` had to be copied into its place.
  void missed(std::size_t index);
  // Something else was made in a gradient's place. No more offers in this backward.
  void mistaken();

 private:
  enum class State { WATCHING, OFFERING, OFF };
  struct Known {
    std::size_t parameter;
    std::size_t number;  // tensors of its size made before it
  };

  State state_ = State::WATCHING;
  bool is_in_pass_ = false;
  bool was_wrong_ = false;  // in this backward
  int watched_ = 0;         // times
  std::vector<Known> known_;
};

}  // namespace lockstep
