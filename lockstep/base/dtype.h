// The element types and reduction operators of collectives, below libtorch.
//
//   dtype_of<float>()        == DType::FLOAT32
//   size_of(DType::BFLOAT16) == 2
//   name_of(ReduceOp::AVG)   == "avg"
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Half-precision values travel as their 16 bits; the reduce kernels widen them to float32.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

enum class DType : std::uint8_t {
  FLOAT64,
  FLOAT32,
  FLOAT16,
  BFLOAT16,
  INT8,
  UINT8,
  INT16,
  UINT16,
  INT32,
  UINT32,
  INT64,
  UINT64,
  BOOL,
  COMPLEX64,
  COMPLEX128,
};
inline constexpr int DTYPE_COUNT = 15;

enum class ReduceOp : std::uint8_t { SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR };
inline constexpr int REDUCE_OP_COUNT = 8;

std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);  // "float32", as torch prints it
std::string_view name_of(ReduceOp op);  // "sum"

bool is_floating(DType dtype);  // float64/32/16 and bfloat16
bool is_complex(DType dtype);

template <typename T> constexpr DType dtype_of();
template <> constexpr DType dtype_of<double>() { return DType::FLOAT64; }
template <> constexpr DType dtype_of<float>() { return DType::FLOAT32; }
template <> constexpr DType dtype_of<Float16>() { return DType::FLOAT16; }
template <> constexpr DType dtype_of<BFloat16>() { return DType::BFLOAT16; }
template <> constexpr DType dtype_of<std::int8_t>() { return DType::INT8; }
template <> constexpr DType dtype_of<std::uint8_t>() { return DType::UINT8; }
template <> constexpr DType dtype_of<std::int16_t>() { return DType::INT16; }
template <> constexpr DType dtype_of<std::uint16_t>() { return DType::UINT16; }
template <> constexpr DType dtype_of<std::int32_t>() { return DType::INT32; }
template <> constexpr DType dtype_of<std::uint32_t>() { return DType::UINT32; }
template <> constexpr DType dtype_of<std::int64_t>() { return DType::INT64; }
template <> constexpr DType dtype_of<std::uint64_t>() { return DType::UINT64; }
template <> constexpr DType dtype_of<bool>() { return DType::BOOL; }
template <> constexpr DType dtype_of<std::complex<float>>() { return DType::COMPLEX64; }
template <> constexpr DType dtype_of<std::complex<double>>() { return DType::COMPLEX128; }

}  // namespace lockstep
