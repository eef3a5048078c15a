// MasterWeights: float32 copies of this rank's parts of 16-bit parameters, which the optimiser steps in their
// place. A part is its master rounded to nearest even, so changes too small for 16 bits add up.
//
//   MasterWeights masters;
//   masters.keep(parts);                    // this rank's parts, as forward and backward use them
//   masters.stepped(3);                     // what the optimiser steps: the master, or the part itself
//   masters.round();                        // after an optimiser that does not write the parts itself
//   masters.follow();                       // after somebody else has written the parts
//
// Parts that are float32 or float64 have no master. Never communicates.
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
  // From now on these parts have masters, in the memory: leaves of one dimension.
  void keep(std::vector<at::Tensor> parts);
  const optim::StateMemory& memory() const { return memory_; }  // also for the optimiser's state

  bool has(std::size_t parameter) const { return !masters_.empty() && masters_[parameter].defined(); }
  bool is_one(const at::Tensor& tensor) const;
  std::size_t bytes() const;
  // Requires has(). A leaf of one dimension.
  const at::Tensor& of(std::size_t parameter) const { return masters_[parameter]; }
  // For the step: where the part lies. Nowhere without a master.
  optim::RoundedCopy copy_of(std::size_t parameter) const;
  void round() const;
  // A master that its part is not the rounded value of becomes the part; element by element.
  void follow() const;

 private:
  optim::StateMemory memory_;
  std::vector<at::Tensor> parts_;
  std::vector<at::Tensor> masters_;  // by parameter; undefined where there is none
};

}  // namespace lockstep
