// The arithmetic of optimiser steps: one pass over the memory of a parameter, its gradient and its state, in
// AVX-512, AVX2 or baseline instructions, chosen at run time. Used by the optimisers of this room, which cut
// parameters into chunks.
//
//   step_kernels().adam(DType::FLOAT32, coefficients, {p, g, {exp_avg, exp_avg_sq}}, count);
//
// Precision  float64 in float64; float32, float16 and bfloat16 in float32, every stored value rounded once.
//            Sums of squares are kept in float64, in 16 partial sums that are added in one order. Compiled
//            with -ffp-contract=off: the bits do not depend on the instruction set.
// Memory     all buffers of one call have the one element type and its alignment, and do not overlap.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/base/dtype.h"

namespace lockstep::optim {

struct StepBuffers {
  void* param = nullptr;
  const void* grad = nullptr;
  void* state[3] = {};  // what the optimiser keeps per parameter, in the order of the formulas below
};

// g = sign * grad + weight_decay * p
// with momentum:     buf = momentum * buf + take * g          state: {buf}
//                    p -= lr * (nesterov ? direct * g + momentum * buf : buf)
// without:           p -= lr * direct * g
struct SgdCoefficients {
  bool has_momentum = false;
  bool nesterov = false;
  double lr = 0;
  double sign = 1;
  double weight_decay = 0;
  double momentum = 0;
  double take = 1;
  double direct = 1;
};

// g = sign * grad + weight_decay * p; p *= keep; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2)
// * g^2
// with amsgrad:      x = max(x, v), else x = v                state: {m, v, x}
// p -= step_size * m / (root_factor * sqrt(x) + eps)
struct AdamCoefficients {
  bool amsgrad = false;
  double sign = 1;
  double weight_decay = 0;  // added to the gradient
  double keep = 1;          // decoupled: 1 - lr * weight_decay
  double beta1 = 0;
  double beta2 = 0;
  double step_size = 0;    // lr / (1 - beta1^t)
  double root_factor = 1;  // 1 / sqrt(1 - beta2^t)
  double eps = 0;
};

// g = grad_factor * grad;  m = beta1 * m + take * g; v = beta2 * v + (1 - beta2) * g^2 state: {m, v}
// u = mean_factor * m / (root_factor * sqrt(v) + eps) + weight_decay * p, of m and v as they are stored
// lamb_moments stores m and v and adds |p|^2 and |u|^2 to the sums; lamb_apply: p -= rate * u.
struct LambCoefficients {
  double grad_factor = 1;
  double beta1 = 0;
  double beta2 = 0;
  double take = 0;
  double mean_factor = 1;  // 1 / (1 - beta1^t), or 1
  double root_factor = 1;  // 1 / sqrt(1 - beta2^t), or 1
  double eps = 0;
  double weight_decay = 0;
};

struct SquareSums {
  double param = 0;   // |p|^2
  double update = 0;  // |grad + weight_decay * p|^2, or |u|^2
};

struct StepKernels {
  const char* instructions;
  void (*sgd)(DType, const SgdCoefficients&, const StepBuffers&, std::size_t count);
  void (*adam)(DType, const AdamCoefficients&, const StepBuffers&, std::size_t count);
  void (*lamb_moments)(DType, const LambCoefficients&, const StepBuffers&, std::size_t count,
                       SquareSums& sums);
  void (*lamb_apply)(DType, const LambCoefficients&, double rate, const StepBuffers&, std::size_t count);
  // Adds |p|^2 and |grad + weight_decay * p|^2 to the sums.
  void (*squares)(DType, double weight_decay, const StepBuffers&, std::size_t count, SquareSums& sums);
  // |data|^2
  double (*square)(DType, const void* data, std::size_t count);
};

// The best this processor runs.
const StepKernels& step_kernels();

// All of them, for tests: those this processor cannot run are missing.
std::array<const StepKernels*, 3> runnable_step_kernels();

bool has_step_kernels(DType dtype);  // the four floating-point types

}  // namespace lockstep::optim
