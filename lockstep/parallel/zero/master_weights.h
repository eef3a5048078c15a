// MasterWeights: copies of this rank's parts of parameters, which the optimiser steps in their place.
//
//   MasterWeights masters;
//   masters.keep(parts, {.widens = true});  // this rank's parts, as forward and backward use them
//   masters.stepped(3);                     // what the optimiser steps: the master, or the part itself
//   masters.round();                        // after an optimiser that does not write the parts itself
//   masters.follow();                       // after somebody else has written the parts
//
// Widened   float32 masters of 16-bit parts. A part is its master rounded to nearest even, so changes that
//           are too small for 16 bits add up. Other parts need none.
// On host   masters of parts on a GPU, in pinned memory of the host. The optimiser's state follows them, and
//           its step runs there. Gradients are copied to the host, and stepped masters back, on the caller's
//           current stream. The caller waits for that stream, once for all of them. A part that lies on the
//           host is stepped there itself.
//
// Never communicates.
// Source  Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/optim/gradient_parts.h"
#include "lockstep/optim/state_memory.h"

namespace lockstep {

class MasterWeights {
 public:
  // No part has a master.
  MasterWeights() = default;
  explicit MasterWeights(optim::StateMemory memory) : memory_(std::move(memory)) {}
  struct Which {
    bool widens = false;
    bool on_host = false;
  };
  // From now on these parts have masters, in the memory: leaves of one dimension.
  void keep(std::vector<at::Tensor> parts, Which which);
  const optim::StateMemory& memory() const { return memory_; }  // also for the optimiser's state

  bool has(std::size_t parameter) const { return !masters_.empty() && masters_[parameter].defined(); }
  // Whether it is a master of more bits than its part has, which a checkpoint needs.
  bool is_wider(const at::Tensor& tensor) const;
  std::size_t bytes() const;
  // Requires has(). A leaf of one dimension.
  const at::Tensor& of(std::size_t parameter) const { return masters_[parameter]; }
  // For the step: where the part lies. Nowhere without a master.
  optim::RoundedCopy copy_of(std::size_t parameter) const;
  void round() const;
  // A gradient of the part as that of what is stepped: widened and on the host, else itself.
  at::Tensor gradient_of(std::size_t parameter, const at::Tensor& gradient) const;
  // A master that its part is not the rounded value of becomes the part; element by element.
  void follow() const;

 private:
  at::Tensor room_for(const at::Tensor& wide) const;

  optim::StateMemory memory_;
  std::vector<at::Tensor> parts_;
  std::vector<at::Tensor> masters_;  // by parameter; undefined where there is none
};

}  // namespace lockstep
