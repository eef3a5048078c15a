// A number of steps as a tensor of a state dict. Pure.
//
//   tensor_of_steps(3)        tensor(3., dtype=torch.float32), as Python keeps it
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstdint>

namespace lockstep::optim {

// float32 holds every whole number up to 2^24 exactly, float64 up to 2^53.
inline at::Tensor tensor_of_steps(std::int64_t steps) {
  constexpr std::int64_t EXACT_IN_FLOAT = std::int64_t{1} << 24U;
  return at::scalar_tensor(static_cast<double>(steps), steps <= EXACT_IN_FLOAT ? at::kFloat : at::kDouble);
}

}  // namespace lockstep::optim
