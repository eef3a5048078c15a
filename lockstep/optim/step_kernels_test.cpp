#include "lockstep/optim/step_kernels.h"

#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace lockstep::optim {
namespace {

// Numbers of a floating-point type as the kernels see them: float16 by way of libtorch's own, bfloat16 of the
// upper half of a float32.
template <typename T> T from(float value) { return static_cast<T>(value); }
template <> Float16 from<Float16>(float value) { return {c10::Half(value).x}; }
template <> BFloat16 from<BFloat16>(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return {static_cast<std::uint16_t>(bits >> 16U)};  // exact for the values used here
}
double to_double(double value) { return value; }
double to_double(float value) { return value; }
double to_double(Float16 value) { return c10::Half(value.bits, c10::Half::from_bits()); }
double to_double(BFloat16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16U;
  float wide = 0;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// Relative distance between neighbours of the type.
template <typename T> constexpr double UNIT = 0;
template <> constexpr double UNIT<double> = 0x1p-52;
template <> constexpr double UNIT<float> = 0x1p-23;
template <> constexpr double UNIT<Float16> = 0x1p-10;
template <> constexpr double UNIT<BFloat16> = 0x1p-7;

template <typename T> struct Memory {
  explicit Memory(std::size_t count, int seed = 1) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto fill = [&](std::vector<T>& values, float low, float high) {
      for (std::size_t i = 0; i < count; ++i) {
        const float steps = static_cast<float>(random() % 65);  // representable in eight bits
        values.push_back(from<T>(low + (high - low) * steps / 64));
      }
    };
    fill(p, -1, 1);
    fill(g, -2, 2);
    fill(a, -1, 1);
    fill(b, 0, 1);
    fill(c, 0, 1);
  }
  StepBuffers buffers() { return {p.data(), g.data(), {a.data(), b.data(), c.data()}}; }
  bool operator==(const Memory& other) const {
    const auto same = [](const std::vector<T>& x, const std::vector<T>& y) {
      return std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
    };
    return same(p, other.p) && same(a, other.a) && same(b, other.b) && same(c, other.c);
  }
  std::vector<T> p, g, a, b, c;
};

std::vector<SgdCoefficients> sgd_cases() {
  std::vector<SgdCoefficients> cases;
  for (const bool momentum : {false, true})
    for (const bool nesterov : {false, true})
      for (const double decay : {0.0, 0.125})
        cases.push_back(
            {momentum, nesterov && momentum, 0.1, decay == 0 ? 1.0 : -1.0, decay, 0.75, 0.5, 0.25});
  return cases;
}

std::vector<AdamCoefficients> adam_cases() {
  std::vector<AdamCoefficients> cases;
  for (const bool amsgrad : {false, true})
    for (const double decay : {0.0, 0.125})
      cases.push_back({amsgrad, decay == 0 ? 1.0 : -1.0, decay, 0.96875, 0.75, 0.875, 0.1, 1.5, 1e-3});
  return cases;
}

const LambCoefficients LAMB = {0.5, 0.75, 0.875, 0.25, 1.25, 1.5, 1e-3, 0.125};

template <typename T> class StepKernels : public ::testing::Test {};
using ElementTypes = ::testing::Types<double, float, Float16, BFloat16>;
TYPED_TEST_SUITE(StepKernels, ElementTypes);

template <typename T> void expect_near(T found, double exact, double scale) {
  EXPECT_NEAR(to_double(found), exact, 8 * UNIT<T> * scale);
}

TYPED_TEST(StepKernels, SgdIsItsFormula) {
  for (const SgdCoefficients& c : sgd_cases()) {
    Memory<TypeParam> memory(100);
    const Memory<TypeParam> before = memory;
    step_kernels().sgd(dtype_of<TypeParam>(), c, memory.buffers(), 100);
    for (std::size_t i = 0; i < 100; ++i) {
      const double p = to_double(before.p[i]);
      const double g = c.sign * to_double(before.g[i]) + c.weight_decay * p;
      const double buf = c.momentum * to_double(before.a[i]) + c.take * g;
      const double moved = c.nesterov ? c.direct * g + c.momentum * buf : buf;
      expect_near(memory.p[i], p - c.lr * (c.has_momentum ? moved : c.direct * g), 1);
      expect_near(memory.a[i], c.has_momentum ? buf : to_double(before.a[i]), 2);
    }
  }
}

TYPED_TEST(StepKernels, AdamIsItsFormula) {
  for (const AdamCoefficients& c : adam_cases()) {
    Memory<TypeParam> memory(100);
    const Memory<TypeParam> before = memory;
    step_kernels().adam(dtype_of<TypeParam>(), c, memory.buffers(), 100);
    for (std::size_t i = 0; i < 100; ++i) {
      const double p = to_double(before.p[i]);
      const double g = c.sign * to_double(before.g[i]) + c.weight_decay * p;
      const double m = c.beta1 * to_double(before.a[i]) + (1 - c.beta1) * g;
      const double v = c.beta2 * to_double(before.b[i]) + (1 - c.beta2) * g * g;
      const double x = c.amsgrad ? std::max(to_double(before.c[i]), v) : v;
      const double change = c.step_size * m / (c.root_factor * std::sqrt(x) + c.eps);
      expect_near(memory.p[i], c.keep * p - change, 1 + std::abs(change));
      expect_near(memory.a[i], m, 1);
      expect_near(memory.b[i], v, 1);
      expect_near(memory.c[i], c.amsgrad ? x : to_double(before.c[i]), 1);
    }
  }
}

TYPED_TEST(StepKernels, LambIsItsFormula) {
  constexpr std::size_t COUNT = 1111;  // more than a block, and not whole ones
  Memory<TypeParam> memory(COUNT);
  const Memory<TypeParam> before = memory;
  SquareSums sums;
  step_kernels().lamb_moments(dtype_of<TypeParam>(), LAMB, memory.buffers(), COUNT, sums);
  const Memory<TypeParam> between = memory;
  step_kernels().lamb_apply(dtype_of<TypeParam>(), LAMB, 0.1, memory.buffers(), COUNT);
  SquareSums expected;
  for (std::size_t i = 0; i < COUNT; ++i) {
    const double p = to_double(before.p[i]);
    const double g = LAMB.grad_factor * to_double(before.g[i]);
    expect_near(between.a[i], LAMB.beta1 * to_double(before.a[i]) + LAMB.take * g, 1);
    expect_near(between.b[i], LAMB.beta2 * to_double(before.b[i]) + (1 - LAMB.beta2) * g * g, 1);
    const double m = to_double(between.a[i]);
    const double v = to_double(between.b[i]);
    const double u =
        LAMB.mean_factor * m / (LAMB.root_factor * std::sqrt(v) + LAMB.eps) + LAMB.weight_decay * p;
    expected.param += p * p;
    expected.update += u * u;
    expect_near(memory.p[i], p - 0.1 * u, 1 + std::abs(u));
  }
  EXPECT_NEAR(sums.param, expected.param, 1e-12 * expected.param);
  EXPECT_NEAR(sums.update, expected.update, 1e-5 * expected.update);
}

TYPED_TEST(StepKernels, SquaresAreSums) {
  for (const std::size_t count : {0, 1, 15, 16, 17, 1000}) {
    Memory<TypeParam> memory(count);
    SquareSums expected = {1, 2};
    double of_grad = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double p = to_double(memory.p[i]);
      const double g = to_double(memory.g[i]);
      expected.param += p * p;
      expected.update += (g + 0.25 * p) * (g + 0.25 * p);
      of_grad += g * g;
    }
    SquareSums sums = {1, 2};
    step_kernels().squares(dtype_of<TypeParam>(), 0.25, memory.buffers(), count, sums);
    EXPECT_NEAR(sums.param, expected.param, 1e-12 * expected.param);
    EXPECT_NEAR(sums.update, expected.update, 1e-12 * expected.update);
    EXPECT_NEAR(step_kernels().square(dtype_of<TypeParam>(), memory.g.data(), count), of_grad,
                1e-12 * of_grad);
  }
}

TYPED_TEST(StepKernels, EveryInstructionSetGivesTheSameBits) {
  const DType dtype = dtype_of<TypeParam>();
  for (const std::size_t count : {1, 7, 64, 1111}) {
    const auto result_of = [&](const optim::StepKernels& kernels, SquareSums& sums) {
      Memory<TypeParam> memory(count, 5);
      for (const auto& c : sgd_cases()) kernels.sgd(dtype, c, memory.buffers(), count);
      for (const auto& c : adam_cases()) kernels.adam(dtype, c, memory.buffers(), count);
      kernels.squares(dtype, 0.3, memory.buffers(), count, sums);
      kernels.lamb_moments(dtype, LAMB, memory.buffers(), count, sums);
      kernels.lamb_apply(dtype, LAMB, 0.1, memory.buffers(), count);
      return memory;
    };
    SquareSums base_sums;
    const auto base = result_of(*runnable_step_kernels()[0], base_sums);
    for (const optim::StepKernels* kernels : runnable_step_kernels()) {
      if (kernels == nullptr) continue;
      SquareSums sums;
      EXPECT_TRUE(result_of(*kernels, sums) == base) << kernels->instructions << ", " << count;
      EXPECT_EQ(sums.param, base_sums.param) << kernels->instructions;
      EXPECT_EQ(sums.update, base_sums.update) << kernels->instructions;
    }
  }
}

TYPED_TEST(StepKernels, NotANumberStays) {
  const auto nan = from<TypeParam>(std::numeric_limits<float>::quiet_NaN());
  Memory<TypeParam> memory(40);
  memory.g[3] = nan;
  memory.c[5] = nan;
  step_kernels().adam(dtype_of<TypeParam>(), adam_cases().back(), memory.buffers(), 40);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(std::isnan(to_double(memory.p[i])), i == 3 || i == 5) << i;
    EXPECT_EQ(std::isnan(to_double(memory.c[i])), i == 3 || i == 5) << i;
  }
}

}  // namespace
}  // namespace lockstep::optim
