#include "lockstep/comm/kernels/reduce_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "lockstep/comm/kernels/reduce_kernels_table.h"

namespace lockstep {
namespace {

// The value of a binary16 number, from the definition in IEEE 754 (sign, 5 exponent bits, 10 fraction bits).
double value_of(Float16 half) {
  const int exponent = half.bits >> 10U & 0x1fU;
  const int fraction = half.bits & 0x3ffU;
  const double sign = (half.bits & 0x8000U) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double value_of(BFloat16 brain) {
  const int exponent = brain.bits >> 7U & 0xffU;
  const int fraction = brain.bits & 0x7fU;
  const double sign = (brain.bits & 0x8000U) != 0 ? -1 : 1;
  if (exponent == 255) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -133);
  return sign * std::ldexp(128 + fraction, exponent - 134);
}

template <typename T> T reduce_two(ReduceOp op, T a, T b) {
  T out = {};
  const std::byte* inputs[] = {reinterpret_cast<std::byte*>(&a), reinterpret_cast<std::byte*>(&b)};
  std::byte* output = reinterpret_cast<std::byte*>(&out);
  reduce(dtype_of<T>(), op, inputs, {&output, 1}, 1);
  return out;
}

// Many at once: they go through other code than one alone.
template <typename T>
std::vector<T> reduce_all(ReduceOp op, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(a.data()),
                               reinterpret_cast<const std::byte*>(b.data())};
  std::byte* output = reinterpret_cast<std::byte*>(out.data());
  reduce(dtype_of<T>(), op, inputs, {&output, 1}, a.size());
  return out;
}

// `result` is `exact` rounded to nearest: no neighbour is nearer, and a tie went to the even one.
template <typename T> void expect_nearest(T result, double exact) {
  if (std::isnan(exact)) {
    EXPECT_TRUE(std::isnan(value_of(result)));
    return;
  }
  const double got = value_of(result);
  if (std::isinf(got)) {
    const T largest = {static_cast<std::uint16_t>(result.bits - 1)};
    const T before = {static_cast<std::uint16_t>(result.bits - 2)};
    const double half_step = (std::abs(value_of(largest)) - std::abs(value_of(before))) / 2;
    EXPECT_GE(std::abs(exact), std::abs(value_of(largest)) + half_step) << exact;
    return;
  }
  const double error = std::abs(got - exact);
  for (const int step : {-1, 1}) {
    const T neighbour = {static_cast<std::uint16_t>(result.bits + step)};
    const double other = value_of(neighbour);
    if (!std::isfinite(other) || std::signbit(other) != std::signbit(got)) continue;
    EXPECT_LE(error, std::abs(other - exact)) << exact;
    if (error == std::abs(other - exact)) {
      EXPECT_EQ(result.bits % 2, 0) << exact;
    }
  }
}

template <typename T> class HalfPrecision : public ::testing::Test {};
using HalfTypes = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfPrecision, HalfTypes);

TYPED_TEST(HalfPrecision, EveryValueSurvives) {
  std::vector<TypeParam> all;
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) all.push_back({static_cast<std::uint16_t>(bits)});
  const std::vector<TypeParam> together = reduce_all(ReduceOp::MAX, all, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const TypeParam out : {reduce_two(ReduceOp::MAX, all[i], all[i]), together[i]}) {
      if (std::isnan(value_of(all[i]))) {
        EXPECT_TRUE(std::isnan(value_of(out)));
      } else {
        ASSERT_EQ(out.bits, all[i].bits);
      }
    }
  }
}

TYPED_TEST(HalfPrecision, SumsRoundToNearestEven) {
  std::mt19937 random(1);
  std::vector<TypeParam> a;
  std::vector<TypeParam> b;
  for (int i = 0; i < 200'000; ++i) {
    a.push_back({static_cast<std::uint16_t>(random())});
    b.push_back({static_cast<std::uint16_t>(random())});
  }
  const std::vector<TypeParam> together = reduce_all(ReduceOp::SUM, a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    // float32 holds the sum exactly or is so close that rounding it again changes nothing but exact ties:
    // compare with the float32 sum, which is what "accumulate in float32, round once" says.
    const auto sum = static_cast<float>(value_of(a[i])) + static_cast<float>(value_of(b[i]));
    expect_nearest(reduce_two(ReduceOp::SUM, a[i], b[i]), sum);
    expect_nearest(together[i], sum);
  }
}

// Of a length that no register divides.
TYPED_TEST(HalfPrecision, IsWidenedExactly) {
  std::vector<TypeParam> all;
  for (std::uint32_t bits = 0; bits < 0xffffU; ++bits) all.push_back({static_cast<std::uint16_t>(bits)});
  std::vector<float> wide(all.size());
  widen(dtype_of<TypeParam>(), reinterpret_cast<const std::byte*>(all.data()),
        reinterpret_cast<std::byte*>(wide.data()), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double value = value_of(all[i]);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(wide[i]));
    else
      ASSERT_EQ(wide[i], value);
    ASSERT_EQ(std::signbit(wide[i]), (all[i].bits & 0x8000U) != 0);
  }
}

TYPED_TEST(HalfPrecision, IsNarrowedToNearestEven) {
  std::mt19937 random(1);
  std::vector<float> wide;
  for (int i = 0; i < 200'001; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    // Half of them among those that binary16 has neighbours of.
    wide.push_back(i % 2 == 0 ? value : static_cast<float>(static_cast<int>(bits)) * 0x1p-16F);
  }
  std::vector<TypeParam> narrowed(wide.size());
  narrow(dtype_of<TypeParam>(), reinterpret_cast<const std::byte*>(wide.data()),
         reinterpret_cast<std::byte*>(narrowed.data()), wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) expect_nearest(narrowed[i], wide[i]);
}

template <typename T> double value_of(T value) { return value; }

template <typename T>
void expect_same(const std::vector<std::byte>& some, const std::vector<std::byte>& others, ReduceOp op) {
  for (std::size_t i = 0; i < some.size(); i += sizeof(T)) {
    T a = {};
    T b = {};
    std::memcpy(&a, some.data() + i, sizeof(T));
    std::memcpy(&b, others.data() + i, sizeof(T));
    const bool both_nan = std::isnan(value_of(a)) && std::isnan(value_of(b));
    EXPECT_TRUE(both_nan || std::memcmp(&a, &b, sizeof(T)) == 0)
        << name_of(op) << " " << value_of(a) << " " << value_of(b);
  }
}

void expect_same_bits(int ranks, int outputs, bool past_caches = false) {
  std::vector<ReduceKernel (*)(DType, ReduceOp)> sets = {kernels_baseline::find_kernel};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") != 0) sets.push_back(kernels_avx2::find_kernel);
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0) {
    sets.push_back(kernels_avx512::find_kernel);
  }
#endif
  constexpr std::size_t COUNT = 1003;
  std::mt19937 random(2);
  for (int d = 0; d < DTYPE_COUNT; ++d) {
    for (int o = 0; o < REDUCE_OP_COUNT; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (!can_reduce(dtype, op)) continue;
      const std::size_t bytes = COUNT * size_of(dtype);
      std::vector<std::vector<std::byte>> data(static_cast<std::size_t>(ranks),
                                               std::vector<std::byte>(bytes));
      for (auto& rank : data) {
        for (auto& byte : rank) byte = static_cast<std::byte>(random() % (dtype == DType::BOOL ? 2 : 256));
      }
      std::vector<const std::byte*> inputs;
      for (const auto& rank : data) inputs.push_back(rank.data());
      std::vector<std::byte> first;
      for (const auto find : sets) {
        std::vector<std::byte> out(bytes);
        std::vector<std::vector<std::byte>> others(static_cast<std::size_t>(outputs) - 1, out);
        std::vector<std::byte*> to = {out.data()};
        for (auto& other : others) to.push_back(other.data());
        find(dtype, op)(inputs.data(), ranks, to.data(), outputs, COUNT, past_caches);
        for (const auto& other : others)
          EXPECT_TRUE(other == out) << name_of(dtype) << " " << name_of(op) << ": all outputs are alike";
        if (first.empty()) first = out;
        // NaN payloads may differ between instruction sets; NaN-ness may not. Random bytes hold NaNs for
        // floats only.
        if (!is_floating(dtype) && !is_complex(dtype))
          EXPECT_EQ(out, first) << name_of(dtype) << " " << name_of(op);
        if (dtype == DType::FLOAT32) expect_same<float>(out, first, op);
        if (dtype == DType::FLOAT64) expect_same<double>(out, first, op);
        if (dtype == DType::FLOAT16) expect_same<Float16>(out, first, op);
        if (dtype == DType::BFLOAT16) expect_same<BFloat16>(out, first, op);
      }
    }
  }
}

TEST(ReduceKernels, EveryInstructionSetGivesTheSameBits) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    expect_same_bits(ranks, 1);
    expect_same_bits(ranks, 1, /*past_caches=*/true);
    expect_same_bits(ranks, ranks);
  }
}

TEST(ReduceKernels, SumsInABalancedTree) {
  // 1 + 1e8 loses the 1 in float32; which sum keeps it tells the order.
  const std::vector<float> x = {1e8F, 1.0F, -1e8F, 1.0F, 3.0F};
  const auto sum = [&](std::size_t ranks) {
    std::vector<const std::byte*> inputs;
    for (std::size_t r = 0; r < ranks; ++r) inputs.push_back(reinterpret_cast<const std::byte*>(&x[r]));
    float out = 0;
    std::byte* output = reinterpret_cast<std::byte*>(&out);
    reduce(DType::FLOAT32, ReduceOp::SUM, inputs, {&output, 1}, 1);
    return out;
  };
  EXPECT_EQ(sum(3), (x[0] + x[1]) + x[2]);
  EXPECT_EQ(sum(4), (x[0] + x[1]) + (x[2] + x[3]));
  EXPECT_EQ(sum(5), ((x[0] + x[1]) + (x[2] + x[3])) + x[4]);
}

// The tree of the contract: the left half is the largest power of two below the number of values.
float tree_sum(std::span<const float> values) {
  if (values.size() == 1) return values[0];
  const std::size_t left = std::bit_floor(values.size() - 1);
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

// As an all_reduce does it (an output in the place of each input), a reduce_scatter (one output), and in
// between.
void expect_tree_sums(std::size_t ranks, std::size_t outputs, bool in_place, ReduceOp op,
                      bool past_caches = false) {
  constexpr std::size_t COUNT = 1003;
  std::mt19937 random(static_cast<unsigned>(ranks));
  std::normal_distribution<float> draw;
  std::vector<std::vector<float>> data(ranks, std::vector<float>(COUNT));
  std::vector<float> expected(COUNT);
  for (std::size_t i = 0; i < COUNT; ++i) {
    std::vector<float> values;
    for (auto& rank : data) values.push_back(rank[i] = draw(random));
    expected[i] = tree_sum(values) / (op == ReduceOp::AVG ? static_cast<float>(ranks) : 1.0F);
  }
  std::vector<std::vector<float>> elsewhere(outputs, std::vector<float>(COUNT));
  auto& results = in_place ? data : elsewhere;
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (const auto& rank : data) from.push_back(reinterpret_cast<const std::byte*>(rank.data()));
  for (std::size_t o = 0; o < outputs; ++o) to.push_back(reinterpret_cast<std::byte*>(results[o].data()));
  reduce(DType::FLOAT32, op, from, to, COUNT, past_caches);
  for (std::size_t o = 0; o < outputs; ++o)
    EXPECT_EQ(results[o], expected) << ranks << " ranks, output " << o << " of " << outputs;
}

TEST(ReduceKernels, EveryNumberOfRanksAndOutputsAlsoInPlace) {
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG}) {
    for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
      for (std::size_t outputs = 1; outputs <= ranks; ++outputs) {
        expect_tree_sums(ranks, outputs, /*in_place=*/true, op);
        expect_tree_sums(ranks, outputs, /*in_place=*/false, op);
      }
      expect_tree_sums(ranks, 1, /*in_place=*/false, op, /*past_caches=*/true);
    }
  }
}

TEST(ReduceKernels, IntegersWrap) {
  EXPECT_EQ(reduce_two<std::int8_t>(ReduceOp::SUM, 100, 100), static_cast<std::int8_t>(200));
  EXPECT_EQ(reduce_two<std::uint16_t>(ReduceOp::PRODUCT, 65535, 65535), 1);
  EXPECT_EQ(reduce_two<std::int32_t>(ReduceOp::SUM, std::numeric_limits<std::int32_t>::max(), 1),
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(reduce_two<std::int64_t>(ReduceOp::MIN, -5, 3), -5);
  EXPECT_EQ(reduce_two<std::uint64_t>(ReduceOp::MAX, ~0ULL, 3), ~0ULL);
}

TEST(ReduceKernels, CombinesBits) {
  EXPECT_EQ(reduce_two<std::uint8_t>(ReduceOp::BAND, 0b1100, 0b1010), 0b1000);
  EXPECT_EQ(reduce_two<std::int64_t>(ReduceOp::BOR, -8, 5), -3);
  EXPECT_EQ(reduce_two<std::int16_t>(ReduceOp::BXOR, -1, 0x0ff0), static_cast<std::int16_t>(0xf00f));
}

TEST(ReduceKernels, KnowsWhatTorchReduces) {
  for (const ReduceOp op : {ReduceOp::BAND, ReduceOp::BOR, ReduceOp::BXOR}) {
    EXPECT_FALSE(can_reduce(DType::FLOAT32, op));
    EXPECT_FALSE(can_reduce(DType::BFLOAT16, op));
    EXPECT_FALSE(can_reduce(DType::COMPLEX64, op));
    EXPECT_TRUE(can_reduce(DType::UINT64, op));
    EXPECT_TRUE(can_reduce(DType::BOOL, op));
  }
  EXPECT_FALSE(can_reduce(DType::INT32, ReduceOp::AVG));
  EXPECT_FALSE(can_reduce(DType::BOOL, ReduceOp::AVG));
  EXPECT_FALSE(can_reduce(DType::COMPLEX64, ReduceOp::PRODUCT));
  EXPECT_FALSE(can_reduce(DType::COMPLEX128, ReduceOp::MAX));
  EXPECT_TRUE(can_reduce(DType::COMPLEX64, ReduceOp::AVG));
  EXPECT_TRUE(can_reduce(DType::BFLOAT16, ReduceOp::AVG));
}

}  // namespace
}  // namespace lockstep
