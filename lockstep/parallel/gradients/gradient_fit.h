// Whether a parameter's .grad can travel with the others of its bucket.
//
//   if (const auto why = refusal_of(parameter.grad(), parameter)) ...     // "its gradient is Sparse, ..."
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace lockstep {

// Same dtype, shape and device.
bool are_alike(const at::Tensor& a, const at::Tensor& b);
// Why it cannot, where `like` has the dtype, shape and device that it should have: there is none, it is
// sparse, or it is not alike.
std::optional<std::string> refusal_of(const at::Tensor& grad, const at::Tensor& like);

}  // namespace lockstep
