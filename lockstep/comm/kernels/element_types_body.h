// How kernels hold the elements of a buffer while they compute: a type with Stored, Acc, load and store.
// float16 and bfloat16 are widened to float32 and rounded once, to nearest even. Included by the bodies that
// are compiled once per instruction set, each of which sets LOCKSTEP_KERNELS to a namespace name; everything
// has internal linkage, as there.
#pragma once

#ifdef __F16C__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "lockstep/base/dtype.h"

namespace lockstep::LOCKSTEP_KERNELS {
namespace {

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float widen(BFloat16 value) { return float_of(std::uint32_t{value.bits} << 16U); }
inline BFloat16 narrow_bfloat16(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U)
    return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};  // quiet NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

// IEEE 754 binary16. Subnormals are exact: their value is the fraction times 2^-24, which float32 holds.
inline float widen(Float16 value) {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000U} << 16U;
  const std::uint32_t exponent = (value.bits >> 10U) & 0x1fU;
  const std::uint32_t fraction = value.bits & 0x3ffU;
  if (exponent == 0) return float_of(sign | bits_of(static_cast<float>(fraction) * 0x1p-24F));
  if (exponent == 31) return float_of(sign | 0x7f800000U | (fraction << 13U));
  return float_of(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
}
inline Float16 narrow_float16(float value) {
  const std::uint32_t bits = bits_of(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U)
    return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13U) & 0x3ffU))};
  if (magnitude >= 0x477ff000U)
    return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // rounds to 65536 or more
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is a multiple of 2^-24. Adding 0.5 puts that multiple, correctly rounded, in the
    // low bits.
    const std::uint32_t rounded = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
    return {static_cast<std::uint16_t>(sign | rounded)};
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13U) & 1U);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U))};
}

// Integers wrap, so they combine unsigned.
template <typename T> struct Same {
  using Stored = T;
  using Acc = T;
  static Acc load(T value) { return value; }
  static T store(Acc value) { return value; }
};
struct Half {
  using Stored = Float16;
  using Acc = float;
  static float load(Float16 value) { return widen(value); }
  static Float16 store(float value) { return narrow_float16(value); }
};
struct Brain {
  using Stored = BFloat16;
  using Acc = float;
  static float load(BFloat16 value) { return widen(value); }
  static BFloat16 store(float value) { return narrow_bfloat16(value); }
};

// Many at once. Where processors have instructions for float16 (F16C), they round as above; a compiler does
// not find them in it.
template <typename Type> constexpr bool HAS_INSTRUCTIONS = false;
template <typename Type>
void load_all(const typename Type::Stored* from, std::size_t count, typename Type::Acc* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = Type::load(from[i]);
}
template <typename Type>
void store_all(const typename Type::Acc* from, std::size_t count, typename Type::Stored* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = Type::store(from[i]);
}
#ifdef __F16C__
template <> constexpr bool HAS_INSTRUCTIONS<Half> = true;
template <> inline void load_all<Half>(const Float16* from, std::size_t count, float* to) {
  const std::size_t eights = count / 8 * 8;
  for (std::size_t i = 0; i < eights; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (std::size_t i = eights; i < count; ++i) to[i] = Half::load(from[i]);
}
template <> inline void store_all<Half>(const float* from, std::size_t count, Float16* to) {
  const std::size_t eights = count / 8 * 8;
  for (std::size_t i = 0; i < eights; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (std::size_t i = eights; i < count; ++i) to[i] = Half::store(from[i]);
}
#endif

}  // namespace
}  // namespace lockstep::LOCKSTEP_KERNELS
