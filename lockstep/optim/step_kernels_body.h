// The step kernels themselves, compiled once per instruction set: each step_kernels_*.cpp sets
// LOCKSTEP_KERNELS to a namespace name and includes this file. Everything has internal linkage, so that code
// for one instruction set cannot be linked into another. Loops are written for the compiler to vectorise:
// flags are template arguments, coefficients have the type of the arithmetic, and nothing aliases.
#pragma once

#include <cstddef>

#include "lockstep/base/dtype.h"
#include "lockstep/comm/kernels/element_types_body.h"  // IWYU pragma: keep
#include "lockstep/optim/step_kernels_table.h"

namespace lockstep::LOCKSTEP_KERNELS {
namespace {

using optim::AdamCoefficients;
using optim::LambCoefficients;
using optim::SgdCoefficients;
using optim::SquareSums;
using optim::StepBuffers;

inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }

template <typename Type> auto* values(void* data) { return static_cast<typename Type::Stored*>(data); }
template <typename Type> const auto* values(const void* data) {
  return static_cast<const typename Type::Stored*>(data);
}

// -------------------------------------------------------------------------------------------------------------------
// SGD

template <typename Type, bool MOMENTUM, bool NESTEROV, bool DECAY>
void sgd_loop(const SgdCoefficients& c, const StepBuffers& buffers, std::size_t count) {
  using Acc = typename Type::Acc;
  auto* __restrict p = values<Type>(buffers.param);
  const auto* __restrict g = values<Type>(buffers.grad);
  auto* __restrict buf = values<Type>(buffers.state[0]);
  const Acc lr = static_cast<Acc>(c.lr), sign = static_cast<Acc>(c.sign),
            decay = static_cast<Acc>(c.weight_decay);
  const Acc momentum = static_cast<Acc>(c.momentum), take = static_cast<Acc>(c.take),
            direct = static_cast<Acc>(c.direct);
  for (std::size_t i = 0; i < count; ++i) {
    const Acc before = Type::load(p[i]);
    Acc grad = sign * Type::load(g[i]);
    if constexpr (DECAY) grad = grad + decay * before;
    Acc update = direct * grad;
    if constexpr (MOMENTUM) {
      const Acc moved = momentum * Type::load(buf[i]) + take * grad;
      buf[i] = Type::store(moved);
      update = NESTEROV ? update + momentum * moved : moved;
    }
    p[i] = Type::store(before - lr * update);
  }
}

template <typename Type>
void sgd_of(const SgdCoefficients& c, const StepBuffers& buffers, std::size_t count) {
  const bool decay = c.weight_decay != 0;
  if (!c.has_momentum) {
    decay ? sgd_loop<Type, false, false, true>(c, buffers, count)
          : sgd_loop<Type, false, false, false>(c, buffers, count);
  } else if (c.nesterov) {
    decay ? sgd_loop<Type, true, true, true>(c, buffers, count)
          : sgd_loop<Type, true, true, false>(c, buffers, count);
  } else {
    decay ? sgd_loop<Type, true, false, true>(c, buffers, count)
          : sgd_loop<Type, true, false, false>(c, buffers, count);
  }
}

// ------------------------------------------------------------------------------------------------------------------
// Adam

template <typename Type, bool AMSGRAD, bool ADDED_DECAY>
void adam_loop(const AdamCoefficients& c, const StepBuffers& buffers, std::size_t count) {
  using Acc = typename Type::Acc;
  auto* __restrict p = values<Type>(buffers.param);
  const auto* __restrict g = values<Type>(buffers.grad);
  auto* __restrict mean = values<Type>(buffers.state[0]);
  auto* __restrict square = values<Type>(buffers.state[1]);
  auto* __restrict largest = values<Type>(buffers.state[2]);
  const Acc sign = static_cast<Acc>(c.sign), decay = static_cast<Acc>(c.weight_decay),
            keep = static_cast<Acc>(c.keep);
  const Acc beta1 = static_cast<Acc>(c.beta1), beta2 = static_cast<Acc>(c.beta2);
  const Acc take1 = static_cast<Acc>(1 - c.beta1), take2 = static_cast<Acc>(1 - c.beta2);
  const Acc step_size = static_cast<Acc>(c.step_size), root_factor = static_cast<Acc>(c.root_factor),
            eps = static_cast<Acc>(c.eps);
  for (std::size_t i = 0; i < count; ++i) {
    const Acc before = Type::load(p[i]);
    Acc grad = sign * Type::load(g[i]);
    if constexpr (ADDED_DECAY) grad = grad + decay * before;
    const Acc m = beta1 * Type::load(mean[i]) + take1 * grad;
    const Acc v = beta2 * Type::load(square[i]) + take2 * grad * grad;
    mean[i] = Type::store(m);
    square[i] = Type::store(v);
    Acc x = v;
    if constexpr (AMSGRAD) {
      const Acc old = Type::load(largest[i]);
      x = (v > old || v != v) ? v : old;  // as torch::maximum: NaN stays
      largest[i] = Type::store(x);
    }
    p[i] = Type::store(keep * before - step_size * m / (root_factor * root(x) + eps));
  }
}

template <typename Type>
void adam_of(const AdamCoefficients& c, const StepBuffers& buffers, std::size_t count) {
  const bool added = c.weight_decay != 0;
  if (c.amsgrad) {
    added ? adam_loop<Type, true, true>(c, buffers, count) : adam_loop<Type, true, false>(c, buffers, count);
  } else {
    added ? adam_loop<Type, false, true>(c, buffers, count)
          : adam_loop<Type, false, false>(c, buffers, count);
  }
}

// ----------------------------------------------------------------------------------------------------------
// sums of squares

constexpr std::size_t LANES = 16;  // partial sums, the same for every instruction set

struct Lanes {
  double sum[LANES] = {};
  double total() const {
    double all = 0;
    for (const double lane : sum) all += lane;
    return all;
  }
};

template <typename Type> double square_of(const void* data, std::size_t count) {
  const auto* __restrict x = values<Type>(data);
  Lanes lanes;
  std::size_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    for (std::size_t j = 0; j < LANES; ++j) {
      const auto wide = static_cast<double>(Type::load(x[i + j]));
      lanes.sum[j] += wide * wide;
    }
  }
  for (std::size_t j = 0; i < count; ++i, ++j) {
    const auto wide = static_cast<double>(Type::load(x[i]));
    lanes.sum[j] += wide * wide;
  }
  return lanes.total();
}

template <typename Type>
void squares_of(double weight_decay, const StepBuffers& buffers, std::size_t count, SquareSums& sums) {
  const auto* __restrict p = values<Type>(static_cast<const void*>(buffers.param));
  const auto* __restrict g = values<Type>(buffers.grad);
  Lanes of_param;
  Lanes of_grad;
  const auto add = [&](std::size_t i, std::size_t lane) {
    const auto wide = static_cast<double>(Type::load(p[i]));
    const double grad = static_cast<double>(Type::load(g[i])) + weight_decay * wide;
    of_param.sum[lane] += wide * wide;
    of_grad.sum[lane] += grad * grad;
  };
  std::size_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    for (std::size_t j = 0; j < LANES; ++j) add(i + j, j);
  }
  for (std::size_t j = 0; i < count; ++i, ++j) add(i, j);
  sums.param += of_param.total();
  sums.update += of_grad.total();
}

// ------------------------------------------------------------------------------------------------------------------
// LAMB

template <typename Acc> struct LambFactors {
  explicit LambFactors(const LambCoefficients& c)
      : mean_factor(static_cast<Acc>(c.mean_factor)),
        root_factor(static_cast<Acc>(c.root_factor)),
        eps(static_cast<Acc>(c.eps)),
        decay(static_cast<Acc>(c.weight_decay)) {}
  Acc update(Acc m, Acc v, Acc p) const {
    return mean_factor * m / (root_factor * root(v) + eps) + decay * p;
  }
  Acc mean_factor, root_factor, eps, decay;
};

// A block at a time: first the update of each element, then the sums of a block that is still in the first
// cache.
template <typename Type>
void lamb_moments_of(const LambCoefficients& c, const StepBuffers& buffers, std::size_t count,
                     SquareSums& sums) {
  using Acc = typename Type::Acc;
  constexpr std::size_t BLOCK = 512;
  const auto* __restrict p = values<Type>(static_cast<const void*>(buffers.param));
  const auto* __restrict g = values<Type>(buffers.grad);
  auto* __restrict mean = values<Type>(buffers.state[0]);
  auto* __restrict square = values<Type>(buffers.state[1]);
  const LambFactors<Acc> factors(c);
  const Acc grad_factor = static_cast<Acc>(c.grad_factor), beta1 = static_cast<Acc>(c.beta1),
            beta2 = static_cast<Acc>(c.beta2), take1 = static_cast<Acc>(c.take),
            take2 = static_cast<Acc>(1 - c.beta2);
  alignas(64) Acc updates[BLOCK];
  for (std::size_t start = 0; start < count; start += BLOCK) {
    const std::size_t length = count - start < BLOCK ? count - start : BLOCK;
    for (std::size_t j = 0; j < length; ++j) {
      const std::size_t i = start + j;
      const Acc grad = grad_factor * Type::load(g[i]);
      mean[i] = Type::store(beta1 * Type::load(mean[i]) + take1 * grad);
      square[i] = Type::store(beta2 * Type::load(square[i]) + take2 * grad * grad);
      updates[j] = factors.update(Type::load(mean[i]), Type::load(square[i]), Type::load(p[i]));
    }
    sums.param += square_of<Type>(p + start, length);
    sums.update += square_of<Same<Acc>>(updates, length);
  }
}

template <typename Type>
void lamb_apply_of(const LambCoefficients& c, double rate, const StepBuffers& buffers, std::size_t count) {
  using Acc = typename Type::Acc;
  auto* __restrict p = values<Type>(buffers.param);
  const auto* __restrict mean = values<Type>(static_cast<const void*>(buffers.state[0]));
  const auto* __restrict square = values<Type>(static_cast<const void*>(buffers.state[1]));
  const LambFactors<Acc> factors(c);
  const Acc narrow_rate = static_cast<Acc>(rate);
  for (std::size_t i = 0; i < count; ++i) {
    const Acc before = Type::load(p[i]);
    p[i] = Type::store(before -
                       narrow_rate * factors.update(Type::load(mean[i]), Type::load(square[i]), before));
  }
}

// -------------------------------------------------------------------------------------------------------- by
// element type

template <typename Call> void with_type(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::FLOAT64: return call(Same<double>());
    case DType::FLOAT32: return call(Same<float>());
    case DType::FLOAT16: return call(Half());
    case DType::BFLOAT16: return call(Brain());
    default: return;  // has_step_kernels() is false
  }
}

void sgd(DType dtype, const SgdCoefficients& c, const StepBuffers& buffers, std::size_t count) {
  with_type(dtype, [&](auto type) { sgd_of<decltype(type)>(c, buffers, count); });
}
void adam(DType dtype, const AdamCoefficients& c, const StepBuffers& buffers, std::size_t count) {
  with_type(dtype, [&](auto type) { adam_of<decltype(type)>(c, buffers, count); });
}
void lamb_moments(DType dtype, const LambCoefficients& c, const StepBuffers& buffers, std::size_t count,
                  SquareSums& sums) {
  with_type(dtype, [&](auto type) { lamb_moments_of<decltype(type)>(c, buffers, count, sums); });
}
void lamb_apply(DType dtype, const LambCoefficients& c, double rate, const StepBuffers& buffers,
                std::size_t count) {
  with_type(dtype, [&](auto type) { lamb_apply_of<decltype(type)>(c, rate, buffers, count); });
}
void squares(DType dtype, double weight_decay, const StepBuffers& buffers, std::size_t count,
             SquareSums& sums) {
  with_type(dtype, [&](auto type) { squares_of<decltype(type)>(weight_decay, buffers, count, sums); });
}
double square(DType dtype, const void* data, std::size_t count) {
  double sum = 0;
  with_type(dtype, [&](auto type) { sum = square_of<decltype(type)>(data, count); });
  return sum;
}

#define LOCKSTEP_NAME_OF(name) #name
#define LOCKSTEP_EXPANDED_NAME_OF(name) LOCKSTEP_NAME_OF(name)

}  // namespace

const optim::StepKernels& kernels() {
  static constexpr optim::StepKernels table = {
      LOCKSTEP_EXPANDED_NAME_OF(LOCKSTEP_KERNELS), sgd, adam, lamb_moments, lamb_apply, squares, square};
  return table;
}

}  // namespace lockstep::LOCKSTEP_KERNELS
