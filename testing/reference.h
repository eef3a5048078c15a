// What a reduction must give, computed element by element the plain way: the expectation of the conformance
// tests, written from the contract of all_reduce.h without a look at the kernels.
//
//   for_each_dtype([&]<typename T>() {
//     const T mine = sample<T>(rank, index, seed);  // random bits, floating point kept finite
//     const T all = combine<T>(ReduceOp::SUM, values_by_rank);  // in the balanced tree over the ranks
//   });
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "lockstep/base/dtype.h"

namespace lockstep::reference {

template <typename T>
inline constexpr bool IS_HALF = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <typename T> inline constexpr bool IS_COMPLEX = false;
template <typename T> inline constexpr bool IS_COMPLEX<std::complex<T>> = true;

// ---- 16-bit floating point, by definition: a sign, E exponent bits, F fraction bits
template <typename T> inline constexpr int FRACTION_BITS = std::is_same_v<T, Float16> ? 10 : 7;
template <typename T> inline constexpr int BIAS = std::is_same_v<T, Float16> ? 15 : 127;

template <typename T> double value_of(T half) {
  constexpr int F = FRACTION_BITS<T>;
  const int exponent = (half.bits & 0x7fff) >> F;
  const int fraction = half.bits & ((1 << F) - 1);
  const double sign = (half.bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 2 * BIAS<T> + 1) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - BIAS<T> - F);
  return sign * std::ldexp(fraction + (1 << F), exponent - BIAS<T> - F);
}

// The nearest 16-bit value, of two equally near ones the one with an even last bit. Positive values are
// ordered as their bits.
template <typename T> T nearest(double value) {
  constexpr int INFINITE = (2 * BIAS<T> + 1) << FRACTION_BITS<T>;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return {static_cast<std::uint16_t>(INFINITE + 1)};
  const double size = std::fabs(value);
  int low = 0;
  int high = INFINITE;  // in what follows, infinity counts as the power of two it stands in the place of
  const auto at = [&](int bits) {
    return bits == INFINITE ? std::ldexp(1, BIAS<T> + 1) : value_of(T{static_cast<std::uint16_t>(bits)});
  };
  while (high - low > 1) (at((low + high) / 2) <= size ? low : high) = (low + high) / 2;
  const double below = size - at(low);
  const double above = at(high) - size;
  const bool take_high = above < below || (above == below && low % 2 != 0);
  return {static_cast<std::uint16_t>(sign | (take_high ? high : low))};
}

// ---- values
inline std::uint64_t random_bits(std::uint64_t seed) {  // splitmix64
  seed += 0x9e3779b97f4a7c15;
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111eb;
  return seed ^ (seed >> 31);
}

// A finite number of either sign between 2^-6 and 4, with all its fraction bits random.
inline double random_number(std::uint64_t bits) {
  const double fraction = 1 + static_cast<double>(bits >> 12) * 0x1p-52;
  return std::ldexp((bits & 1) != 0 ? -fraction : fraction, static_cast<int>(bits >> 1 & 7) - 6);
}

// Integers: any bits, so that sums wrap. Floating point: finite, so rounded that the order of summation
// shows.
template <typename T> T sample(int rank, std::size_t index, std::uint64_t seed = 0) {
  const std::uint64_t bits = random_bits(seed * 1000003 + index * 64 + static_cast<std::uint64_t>(rank));
  if constexpr (std::is_same_v<T, bool>) {
    return bits % 4 != 0;
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(bits);
  } else if constexpr (IS_HALF<T>) {
    return nearest<T>(random_number(bits));
  } else if constexpr (IS_COMPLEX<T>) {
    using Part = typename T::value_type;
    return {static_cast<Part>(random_number(bits)), static_cast<Part>(random_number(random_bits(bits)))};
  } else {
    return static_cast<T>(random_number(bits));
  }
}

// ---- reduction
template <typename T> T combine_two(ReduceOp op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    if (op == ReduceOp::BXOR) return a != b;
    return op == ReduceOp::SUM || op == ReduceOp::MAX || op == ReduceOp::BOR ? a || b : a && b;
  } else if constexpr (IS_COMPLEX<T>) {
    return a + b;
  } else if constexpr (std::integral<T>) {
    if (op == ReduceOp::SUM)
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    if (op == ReduceOp::PRODUCT)
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    if (op == ReduceOp::BAND) return static_cast<T>(a & b);
    if (op == ReduceOp::BOR) return static_cast<T>(a | b);
    if (op == ReduceOp::BXOR) return static_cast<T>(a ^ b);
    return (op == ReduceOp::MIN) == (a < b) ? a : b;
  } else {
    if (op == ReduceOp::PRODUCT) return a * b;
    if (op != ReduceOp::MIN && op != ReduceOp::MAX) return a + b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    return (op == ReduceOp::MIN) == (a < b) ? a : b;
  }
}

// Neighbours combine until one is left; an odd one out moves up.
template <typename T> T tree(ReduceOp op, std::vector<T> values) {
  while (values.size() > 1) {
    std::vector<T> next;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2)
      next.push_back(combine_two<T>(op, values[i], values[i + 1]));
    if (values.size() % 2 != 0) next.push_back(values.back());
    values = next;
  }
  return values.front();
}

template <typename T> T combine(ReduceOp op, const std::vector<T>& by_rank) {
  if constexpr (IS_HALF<T>) {
    std::vector<float> wide;
    for (const T half : by_rank) wide.push_back(static_cast<float>(value_of(half)));
    return nearest<T>(static_cast<double>(combine<float>(op, wide)));
  } else {
    T result = tree<T>(op, {by_rank.begin(), by_rank.end()});
    if constexpr (IS_COMPLEX<T>) {
      if (op == ReduceOp::AVG) {
        const auto ranks = static_cast<typename T::value_type>(by_rank.size());
        result = {result.real() / ranks, result.imag() / ranks};
      }
    } else if constexpr (std::floating_point<T>) {
      if (op == ReduceOp::AVG) result /= static_cast<T>(by_rank.size());
    }
    return result;
  }
}

// Bits are equal, or both are NaN.
template <typename T> bool same(const T& a, const T& b) {
  if constexpr (IS_HALF<T>) {
    return a.bits == b.bits || (std::isnan(value_of(a)) && std::isnan(value_of(b)));
  } else if constexpr (std::floating_point<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// ---- tables
// Under ThreadSanitizer, which makes every load ten times slower, tests take a smaller part of the tables.
#ifdef __SANITIZE_THREAD__
inline constexpr bool THOROUGH = false;
#else
inline constexpr bool THOROUGH = true;
#endif

// Memory is used differently under the sanitizers: growth of a process says nothing there.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool SANITIZED = true;
#else
inline constexpr bool SANITIZED = false;
#endif

inline constexpr ReduceOp OPS[] = {ReduceOp::SUM, ReduceOp::AVG,  ReduceOp::PRODUCT, ReduceOp::MIN,
                                   ReduceOp::MAX, ReduceOp::BAND, ReduceOp::BOR,     ReduceOp::BXOR};

template <typename T> constexpr bool is_refused(ReduceOp op) {
  if constexpr (IS_COMPLEX<T>) return op != ReduceOp::SUM && op != ReduceOp::AVG;
  const bool bitwise = op == ReduceOp::BAND || op == ReduceOp::BOR || op == ReduceOp::BXOR;
  return std::integral<T> ? op == ReduceOp::AVG : bitwise;
}

// Calls body.operator()<T>() for each of the 15 element types. Threads treat types of one size alike, so
// under ThreadSanitizer there is one of each size.
template <typename Body> void for_each_dtype(Body&& body) {
  const auto each = [&]<typename... T>(std::type_identity<T>...) { (body.template operator()<T>(), ...); };
  each(std::type_identity<double>(), std::type_identity<float>(), std::type_identity<BFloat16>(),
       std::type_identity<std::int8_t>(), std::type_identity<std::complex<double>>());
#ifndef __SANITIZE_THREAD__
  each(std::type_identity<Float16>(), std::type_identity<std::uint8_t>(), std::type_identity<std::int16_t>(),
       std::type_identity<std::uint16_t>(), std::type_identity<std::int32_t>(),
       std::type_identity<std::uint32_t>(), std::type_identity<std::int64_t>(),
       std::type_identity<std::uint64_t>(), std::type_identity<bool>(),
       std::type_identity<std::complex<float>>());
#endif
}
inline constexpr unsigned DTYPES = THOROUGH ? DTYPE_COUNT : 5;  // of these

}  // namespace lockstep::reference
