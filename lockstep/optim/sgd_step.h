// The step of SGD and LARS, on whatever tensors: by kernel where it can be, else by tensor operations.
//
//   SgdSteps steps;
//   steps.add(coefficients, param, grad, buffer);                // of every parameter
//   steps.run();
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/optim/chunks.h"

namespace lockstep::optim {

class SgdSteps {
 public:
  // `buffer` is undefined without momentum.
  void add(const SgdCoefficients& coefficients, const at::Tensor& param, const at::Tensor& grad,
           const at::Tensor& buffer, const GradientParts* parts = nullptr);
  void run() const;

 private:
  std::vector<KernelCall> calls_;
  std::vector<SgdCoefficients> coefficients_;
};

// The momentum of a parameter, zeros the first time.
at::Tensor& zeros_like_once(at::Tensor& state, const at::Tensor& parameter);

}  // namespace lockstep::optim
