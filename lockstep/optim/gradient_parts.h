// GradientParts: a gradient that no tensor holds yet, as the ranks of a machine have it in memory that all of
// them read: each rank's own one. The step takes their average as it goes through memory, a few KiB at a
// time, so that the average is never written.
//
//   const dist::optim::GradientParts parts = {{mine, theirs}};
//   optimizer.look_up_gradients([&](const at::Tensor& parameter) { return &parts; });
//   optimizer.step();                           // steps by (mine + theirs) / 2
//
// One part alone is the average itself. Each part has as many elements as the parameter, in the same order in
// memory. The sum and the average have the bits of all_reduce with ReduceOp::AVG.
//
// Mixed precision: a float32 parameter may have parts of 16 bits, whose average is widened, and a copy of 16
// bits, which the step writes in the same pass:
//
//   const dist::optim::GradientParts parts = {.of_rank = {mine, theirs}, .dtype = DType::BFLOAT16,
//                                             .rounded = {weights, DType::BFLOAT16}};
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/base/dtype.h"

namespace lockstep::optim {

// Where the stepped parameter goes, too, rounded to nearest even; nowhere if `data` is null.
struct RoundedCopy {
  std::byte* data = nullptr;
  DType dtype = DType::BFLOAT16;
};

struct GradientParts {
  std::vector<const std::byte*> of_rank;
  double factor = 1;                // of the average, as clipping makes it
  std::optional<DType> dtype = {};  // of the parts; default: the parameter's
  RoundedCopy rounded = {};
};

// Of a parameter; null: none in this step. They live until the step has been made.
using GradientLookup = std::function<const GradientParts*(const at::Tensor& parameter)>;

}  // namespace lockstep::optim
