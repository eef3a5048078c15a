// GradientParts: a gradient that no tensor holds yet, as the ranks of a machine have it in memory that all of
// them read: each rank's own one. The step takes their average as it goes through memory, a few KiB at a
// time, so that the average is never written.
//
//   const dist::optim::GradientParts parts = {{mine, theirs}};
//   optimizer.look_up_gradients([&](const at::Tensor& parameter) { return &parts; });
//   optimizer.step();                           // steps by (mine + theirs) / 2
//
// One part alone is the average itself. Each part has as many elements as the parameter, of its dtype, in the
// same order in memory. The sum and the average have the bits of all_reduce with ReduceOp::AVG.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace lockstep::optim {

struct GradientParts {
  std::vector<const std::byte*> of_rank;
  double factor = 1;  // of the average, as clipping makes it
};

// Of a parameter; null: none in this step. They live until the step has been made.
using GradientLookup = std::function<const GradientParts*(const at::Tensor& parameter)>;

}  // namespace lockstep::optim
