// The step of SGD and LARS, on whatever tensors: by kernel where it can be, else by tensor operations.
// On a GPU the kernel is libtorch's (fused_steps.h).
//
//   SgdSteps steps;
//   steps.add(coefficients, param, grad, buffer);                // of every parameter
//   steps.run();
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/optim/chunks.h"
#include "lockstep/optim/fused_steps.h"
#include "lockstep/optim/state_memory.h"

namespace lockstep::optim {

class SgdSteps {
 public:
  // `buffer` is undefined without momentum.
  void add(const SgdCoefficients& coefficients, const at::Tensor& param, const at::Tensor& grad,
           const at::Tensor& buffer, const GradientParts* parts = nullptr);
  void run(FileMemory* file) const;  // `file`: for_chunks()

 private:
  bool add_fused(const SgdCoefficients& coefficients, const at::Tensor& param, const at::Tensor& grad,
                 const at::Tensor& buffer);

  std::vector<KernelCall> calls_;
  std::vector<SgdCoefficients> coefficients_;
  FusedSteps<FusedSgd> fused_;
};

// The momentum of a parameter, zeros the first time.
at::Tensor& zeros_like_once(at::Tensor& state, const at::Tensor& parameter, const StateMemory& memory);

}  // namespace lockstep::optim
