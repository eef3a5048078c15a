// The reduce kernels themselves, compiled once per instruction set: each reduce_kernels_*.cpp sets
// LOCKSTEP_KERNELS to a namespace name and includes this file. Everything has internal linkage and no
// function of the standard library is instantiated here, so that code for one instruction set cannot be
// linked into another.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "lockstep/base/dtype.h"
#include "lockstep/comm/kernels/element_types_body.h"  // IWYU pragma: keep
#include "lockstep/comm/kernels/reduce_kernels_table.h"

// Of a loop in which no element depends on another's, whatever pointers the compiler cannot tell apart.
#ifdef __clang__
#define LOCKSTEP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace lockstep::LOCKSTEP_KERNELS {
namespace {

constexpr std::size_t CHUNK = 512;  // elements; accumulators of a tree level stay in the L1 cache
constexpr int LEVELS = 17;          // of a tree over 2^16 ranks

template <typename T> struct Complex { T re, im; };

struct Truth {
  using Stored = std::uint8_t;
  using Acc = std::uint8_t;
  static std::uint8_t load(std::uint8_t value) { return value != 0; }
  static std::uint8_t store(std::uint8_t value) { return value; }
};

struct Sum {
  template <typename T> static T combine(T a, T b) { return static_cast<T>(a + b); }
  template <typename T> static Complex<T> combine(Complex<T> a, Complex<T> b) {
    return {a.re + b.re, a.im + b.im};
  }
};
struct Product {
  // Wide and unsigned: a product of two 16-bit values would overflow the int they are promoted to.
  template <typename T> static T combine(T a, T b) {
    if constexpr (static_cast<T>(0.5) == 0) {
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct BitAnd {
  template <typename T> static T combine(T a, T b) { return static_cast<T>(a & b); }
};
struct BitOr {
  template <typename T> static T combine(T a, T b) { return static_cast<T>(a | b); }
};
struct BitXor {
  template <typename T> static T combine(T a, T b) { return static_cast<T>(a ^ b); }
};
// NaN wins: `a != a` is true for NaN only, and every comparison with it is false.
struct Minimum {
  template <typename T> static T combine(T a, T b) { return (a < b || a != a) ? a : b; }
};
struct Maximum {
  template <typename T> static T combine(T a, T b) { return (a > b || a != a) ? a : b; }
};

template <typename T> T divide(T value, int ranks) { return static_cast<T>(value / static_cast<T>(ranks)); }
template <typename T> Complex<T> divide(Complex<T> value, int ranks) {
  return {value.re / static_cast<T>(ranks), value.im / static_cast<T>(ranks)};
}

template <typename Type> struct Scratch { alignas(64) typename Type::Acc level[LEVELS][CHUNK]; };

// The tree over ranks: the left half is the largest power of two below their number. Up to FEW of them are
// combined in registers.
constexpr int FEW = 4;

template <typename Type, typename Op, int RANKS>
typename Type::Acc tree_of(const typename Type::Stored* const* inputs, std::size_t i) {
  static_assert(RANKS <= FEW);
  if constexpr (RANKS == 1) {
    return Type::load(inputs[0][i]);
  } else {
    constexpr int LEFT = RANKS > 2 ? 2 : 1;
    return Op::combine(tree_of<Type, Op, LEFT>(inputs, i), tree_of<Type, Op, RANKS - LEFT>(inputs + LEFT, i));
  }
}

// Eight elements that are widened and narrowed by instructions.
constexpr std::size_t EIGHT = 8;

template <typename Type, typename Op, bool AVERAGE, int RANKS, int OUTPUTS>
inline void combine_eight(const typename Type::Stored* const* from, typename Type::Stored* const* to,
                          std::size_t at) {
  using Acc = typename Type::Acc;
  Acc values[RANKS][EIGHT];
  const Acc* rows[RANKS];
  for (int r = 0; r < RANKS; ++r) {
    load_all<Type>(from[r] + at, EIGHT, values[r]);
    rows[r] = values[r];
  }
  Acc result[EIGHT];
  for (std::size_t i = 0; i < EIGHT; ++i) {
    result[i] = tree_of<Same<Acc>, Op, RANKS>(rows, i);
    if constexpr (AVERAGE) result[i] = divide(result[i], RANKS);
  }
  for (int o = 0; o < OUTPUTS; ++o) store_all<Type>(result, EIGHT, to[o] + at);
}

// Nothing between the registers and the buffers: by way of a block on the stack, which g++ copies with `rep
// movs`, a sum of two times 64 KiB took three times as long on AMD EPYC. An output may be an input.
template <typename Type, typename Op, bool AVERAGE, int RANKS, int OUTPUTS>
void combine_few(const std::byte* const* inputs, std::byte* const* outputs, std::size_t count) {
  using Stored = typename Type::Stored;
  const Stored* from[RANKS];
  Stored* to[OUTPUTS];
  for (int r = 0; r < RANKS; ++r) from[r] = reinterpret_cast<const Stored*>(inputs[r]);
  for (int o = 0; o < OUTPUTS; ++o) to[o] = reinterpret_cast<Stored*>(outputs[o]);
  std::size_t done = 0;
  if constexpr (HAS_INSTRUCTIONS<Type>) {
    for (; done + EIGHT <= count; done += EIGHT)
      combine_eight<Type, Op, AVERAGE, RANKS, OUTPUTS>(from, to, done);
  }
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = done; i < count; ++i) {
    auto result = tree_of<Type, Op, RANKS>(from, i);
    if constexpr (AVERAGE) result = divide(result, RANKS);
    for (int o = 0; o < OUTPUTS; ++o) to[o][i] = Type::store(result);
  }
}

#ifdef __SSE2__
constexpr std::size_t LINE = 64;  // bytes of a cache line

template <typename Stored> void store_past_caches(const Stored* line, Stored* to) {
#ifdef __AVX512F__
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_load_si512(line));
#else
  const auto* const from = reinterpret_cast<const __m128i*>(line);
  for (std::size_t i = 0; i < LINE / sizeof(__m128i); ++i)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_load_si128(from + i));
#endif
}

// combine_few() with one output, line by line. The fence: a release store after it does not order these
// stores.
template <typename Type, typename Op, bool AVERAGE, int RANKS>
void combine_past_caches(const std::byte* const* inputs, std::byte* output, std::size_t count) {
  using Stored = typename Type::Stored;
  constexpr std::size_t EACH = LINE / sizeof(Stored);
  const std::size_t before = (LINE - reinterpret_cast<std::uintptr_t>(output) % LINE) % LINE / sizeof(Stored);
  const std::size_t first = before < count ? before : count;
  combine_few<Type, Op, AVERAGE, RANKS, 1>(inputs, &output, first);
  const Stored* from[RANKS];
  for (int r = 0; r < RANKS; ++r) from[r] = reinterpret_cast<const Stored*>(inputs[r]);
  auto* const to = reinterpret_cast<Stored*>(output);
  std::size_t done = first;
  for (; done + EACH <= count; done += EACH) {
    alignas(LINE) Stored line[EACH];
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = 0; i < EACH; ++i) {
      auto result = tree_of<Type, Op, RANKS>(from, done + i);
      if constexpr (AVERAGE) result = divide(result, RANKS);
      line[i] = Type::store(result);
    }
    store_past_caches(line, to + done);
  }
  const std::byte* rest[RANKS];
  for (int r = 0; r < RANKS; ++r) rest[r] = inputs[r] + done * sizeof(Stored);
  std::byte* const end = output + done * sizeof(Stored);
  combine_few<Type, Op, AVERAGE, RANKS, 1>(rest, &end, count - done);
  _mm_sfence();
}
#endif

template <typename Type, typename Op, int RANKS>
void combine_few_into(const std::byte* const* inputs, std::size_t offset, std::size_t count,
                      typename Type::Acc* __restrict out) {
  const typename Type::Stored* from[RANKS];
  for (int r = 0; r < RANKS; ++r)
    from[r] = reinterpret_cast<const typename Type::Stored*>(inputs[r]) + offset;
  for (std::size_t i = 0; i < count; ++i) out[i] = tree_of<Type, Op, RANKS>(from, i);
}

// Into the scratch memory's `level`.
template <typename Type, typename Op>
void tree(const std::byte* const* inputs, int ranks, std::size_t offset, std::size_t count,
          Scratch<Type>& scratch, int level) {
  using Stored = typename Type::Stored;
  auto* __restrict out = scratch.level[level];
  if (ranks == 1) return load_all<Type>(reinterpret_cast<const Stored*>(inputs[0]) + offset, count, out);
  if constexpr (!HAS_INSTRUCTIONS<Type>) {
    if (ranks == 2) return combine_few_into<Type, Op, 2>(inputs, offset, count, out);
    if (ranks == 3) return combine_few_into<Type, Op, 3>(inputs, offset, count, out);
    if (ranks == 4) return combine_few_into<Type, Op, 4>(inputs, offset, count, out);
  }
  int left = 1;
  while (left * 2 < ranks) left *= 2;
  tree<Type, Op>(inputs, left, offset, count, scratch, level);
  tree<Type, Op>(inputs + left, ranks - left, offset, count, scratch, level + 1);
  const auto* __restrict right = scratch.level[level + 1];
  for (std::size_t i = 0; i < count; ++i) out[i] = Op::combine(out[i], right[i]);
}

template <typename Type, typename Op, bool AVERAGE>
void kernel(const std::byte* const* inputs, int ranks, std::byte* const* outputs, int output_count,
            std::size_t count, [[maybe_unused]] bool past_caches) {
  using Stored = typename Type::Stored;
#ifdef __SSE2__
  if constexpr (!HAS_INSTRUCTIONS<Type> && LINE % sizeof(Stored) == 0) {
    if (past_caches && ranks == 2)
      return combine_past_caches<Type, Op, AVERAGE, 2>(inputs, outputs[0], count);
    if (past_caches && ranks == 3)
      return combine_past_caches<Type, Op, AVERAGE, 3>(inputs, outputs[0], count);
    if (past_caches && ranks == 4)
      return combine_past_caches<Type, Op, AVERAGE, 4>(inputs, outputs[0], count);
  }
#endif
  if (ranks == 2 && output_count == 1) return combine_few<Type, Op, AVERAGE, 2, 1>(inputs, outputs, count);
  if (ranks == 2 && output_count == 2) return combine_few<Type, Op, AVERAGE, 2, 2>(inputs, outputs, count);
  if (ranks == 3 && output_count == 3) return combine_few<Type, Op, AVERAGE, 3, 3>(inputs, outputs, count);
  if (ranks == 4 && output_count == 4) return combine_few<Type, Op, AVERAGE, 4, 4>(inputs, outputs, count);
  Scratch<Type> scratch;
  for (std::size_t offset = 0; offset < count; offset += CHUNK) {
    const std::size_t length = count - offset < CHUNK ? count - offset : CHUNK;
    tree<Type, Op>(inputs, ranks, offset, length, scratch, 0);
    auto* result = scratch.level[0];
    if constexpr (AVERAGE) {
      for (std::size_t i = 0; i < length; ++i) result[i] = divide(result[i], ranks);
    }
    for (int o = 0; o < output_count; ++o) {
      store_all<Type>(result, length, reinterpret_cast<Stored*>(outputs[o]) + offset);
    }
  }
}

template <typename Type> void widen_all(const std::byte* from, std::byte* to, std::size_t count) {
  load_all<Type>(reinterpret_cast<const typename Type::Stored*>(from), count, reinterpret_cast<float*>(to));
}
template <typename Type> void narrow_all(const std::byte* from, std::byte* to, std::size_t count) {
  store_all<Type>(reinterpret_cast<const float*>(from), count, reinterpret_cast<typename Type::Stored*>(to));
}

template <typename Type> ReduceKernel real(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM: return kernel<Type, Sum, false>;
    case ReduceOp::AVG: return kernel<Type, Sum, true>;
    case ReduceOp::PRODUCT: return kernel<Type, Product, false>;
    case ReduceOp::MIN: return kernel<Type, Minimum, false>;
    case ReduceOp::MAX: return kernel<Type, Maximum, false>;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR: break;
  }
  return nullptr;
}

// Signed and unsigned agree on SUM and PRODUCT (both wrap) but not on MIN and MAX.
template <typename Signed, typename Unsigned> ReduceKernel integer(ReduceOp op, bool is_signed) {
  switch (op) {
    case ReduceOp::SUM: return kernel<Same<Unsigned>, Sum, false>;
    case ReduceOp::PRODUCT: return kernel<Same<Unsigned>, Product, false>;
    case ReduceOp::MIN:
      return is_signed ? ReduceKernel(kernel<Same<Signed>, Minimum, false>)
                       : kernel<Same<Unsigned>, Minimum, false>;
    case ReduceOp::MAX:
      return is_signed ? ReduceKernel(kernel<Same<Signed>, Maximum, false>)
                       : kernel<Same<Unsigned>, Maximum, false>;
    case ReduceOp::BAND: return kernel<Same<Unsigned>, BitAnd, false>;
    case ReduceOp::BOR: return kernel<Same<Unsigned>, BitOr, false>;
    case ReduceOp::BXOR: return kernel<Same<Unsigned>, BitXor, false>;
    case ReduceOp::AVG: break;
  }
  return nullptr;
}

ReduceKernel truth(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::BOR:
    case ReduceOp::MAX: return kernel<Truth, Maximum, false>;
    case ReduceOp::PRODUCT:
    case ReduceOp::BAND:
    case ReduceOp::MIN: return kernel<Truth, Minimum, false>;
    case ReduceOp::BXOR: return kernel<Truth, BitXor, false>;
    case ReduceOp::AVG: break;
  }
  return nullptr;
}

template <typename T> ReduceKernel complex(ReduceOp op) {
  if (op == ReduceOp::SUM) return kernel<Same<Complex<T>>, Sum, false>;
  if (op == ReduceOp::AVG) return kernel<Same<Complex<T>>, Sum, true>;
  return nullptr;
}

}  // namespace

ReduceKernel find_kernel(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::FLOAT64: return real<Same<double>>(op);
    case DType::FLOAT32: return real<Same<float>>(op);
    case DType::FLOAT16: return real<Half>(op);
    case DType::BFLOAT16: return real<Brain>(op);
    case DType::INT8: return integer<std::int8_t, std::uint8_t>(op, true);
    case DType::UINT8: return integer<std::int8_t, std::uint8_t>(op, false);
    case DType::INT16: return integer<std::int16_t, std::uint16_t>(op, true);
    case DType::UINT16: return integer<std::int16_t, std::uint16_t>(op, false);
    case DType::INT32: return integer<std::int32_t, std::uint32_t>(op, true);
    case DType::UINT32: return integer<std::int32_t, std::uint32_t>(op, false);
    case DType::INT64: return integer<std::int64_t, std::uint64_t>(op, true);
    case DType::UINT64: return integer<std::int64_t, std::uint64_t>(op, false);
    case DType::BOOL: return truth(op);
    case DType::COMPLEX64: return complex<float>(op);
    case DType::COMPLEX128: return complex<double>(op);
  }
  return nullptr;
}

Conversions find_conversions(DType dtype) {
  if (dtype == DType::FLOAT16) return {widen_all<Half>, narrow_all<Half>};
  if (dtype == DType::BFLOAT16) return {widen_all<Brain>, narrow_all<Brain>};
  return {};
}

}  // namespace lockstep::LOCKSTEP_KERNELS
