#include "lockstep/optim/clip_grad.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/chunks.h"
#include "lockstep/optim/model_part.h"
#include "lockstep/optim/norms.h"

namespace lockstep {
namespace {

void expect_dense(const std::vector<at::Tensor>& tensors, const char* verb) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].layout() != at::kStrided)
      throw InvalidArgument(lockstep::str(verb, ": gradient ", i, ", of shape ", tensors[i].sizes(),
                                          ", is sparse; ", "only dense gradients can be clipped"));
  }
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& parameter : parameters)
    if (parameter.grad().defined()) found.push_back(parameter.grad());
  return found;
}

// Returns the sum of powers whose root is the norm; for the norm of order infinity, the largest value itself.
double power_sum(const std::vector<at::Tensor>& tensors, double norm_type) {
  if (norm_type == 2) return optim::square_sum(tensors);
  double total = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const auto norm =
        at::linalg_vector_norm(tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble), norm_type)
            .item<double>();
    if (std::isnan(norm)) return norm;
    total = std::isinf(norm_type) ? std::max(total, norm) : total + std::pow(norm, norm_type);
  }
  return total;
}

double norm_of(const std::vector<at::Tensor>& tensors, double norm_type, const NormReducer& reducer = {}) {
  double total = power_sum(tensors, norm_type);
  if (std::isinf(norm_type)) {
    reducer.largest({&total, 1});
    return total;
  }
  reducer.sum({&total, 1});
  return norm_type == 2 ? std::sqrt(total) : std::pow(total, 1 / norm_type);
}

}  // namespace

double get_total_norm(const std::vector<at::Tensor>& tensors, double norm_type, bool error_if_nonfinite,
                      const NormReducer& reducer) {
  if (!(norm_type >= 1))
    throw InvalidArgument(lockstep::str("get_total_norm: norm_type is ", norm_type, ", not 1 or more"));
  expect_dense(tensors, "get_total_norm");
  const at::NoGradGuard no_grad;
  const double norm = norm_of(tensors, norm_type, reducer);
  if (error_if_nonfinite && !std::isfinite(norm)) {
    std::size_t first = 0;
    while (first < tensors.size() && std::isfinite(norm_of({tensors[first]}, norm_type))) ++first;
    const std::string where = first == tensors.size()
                                  ? std::string("; all gradients of this rank are finite")
                                  : lockstep::str("; the first that is not finite is gradient ", first,
                                                  ", of shape ", tensors[first].sizes());
    throw InvalidArgument(lockstep::str("the total norm of order ", norm_type, " of the gradients is ", norm,
                                        where, ". error_if_nonfinite = false clips by it all the same."));
  }
  return norm;
}

void clip_grads_with_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double total_norm) {
  if (!(max_norm >= 0)) throw InvalidArgument(lockstep::str("clip_grads_with_norm_: max_norm is ", max_norm));
  const std::vector<at::Tensor> grads = gradients_of(parameters);
  expect_dense(grads, "clip_grads_with_norm_");
  const double factor = max_norm / (total_norm + 1e-6);
  if (factor >= 1) return;  // false for NaN, too
  const at::NoGradGuard no_grad;
  for (const at::Tensor& grad : grads) grad.mul_(factor);
}

double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite, const NormReducer& reducer) {
  if (!(max_norm >= 0)) throw InvalidArgument(lockstep::str("clip_grad_norm_: max_norm is ", max_norm));
  const std::string why = reducer.is_local() ? optim::why_not_the_models_norm(parameters) : "";
  if (!why.empty()) throw InvalidArgument(lockstep::str("clip_grad_norm_: ", why));
  const double norm = get_total_norm(gradients_of(parameters), norm_type, error_if_nonfinite, reducer);
  clip_grads_with_norm_(parameters, max_norm, norm);
  return norm;
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  if (!(clip_value >= 0))
    throw InvalidArgument(lockstep::str("clip_grad_value_: clip_value is ", clip_value));
  const std::vector<at::Tensor> grads = gradients_of(parameters);
  expect_dense(grads, "clip_grad_value_");
  const at::NoGradGuard no_grad;
  for (const at::Tensor& grad : grads) grad.clamp_(-clip_value, clip_value);
}

}  // namespace lockstep
