// See stand_in_sums.h.
#include "tests/nccl/stand_in_sums.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace lockstep::nccl::stand_in {
namespace {

// Right shift by `places`, to nearest, ties to even.
std::uint32_t shift_rounded(std::uint32_t value, int places) {
  const std::uint32_t kept = value >> places;
  const std::uint32_t rest = value - (kept << places);
  const std::uint32_t half = 1U << (places - 1);
  return kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1U : 0U);
}

struct Half {
  std::uint16_t bits;

  explicit operator float() const {
    const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
    const int exponent = (bits >> 10) & 0x1f;
    const auto fraction = static_cast<float>(bits & 0x3ffU);
    if (exponent == 0x1f) return fraction == 0 ? sign * INFINITY : NAN;
    return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0F + fraction, exponent - 25));
  }

  explicit Half(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (wide >> 16) & 0x8000U;
    const std::uint32_t magnitude = wide & 0x7fffffffU;
    std::uint32_t narrow = 0;
    if (magnitude > 0x7f800000U) {
      narrow = 0x7e00U;  // NaN
    } else if (magnitude >= 0x47800000U) {
      narrow = 0x7c00U;  // 65536 and more
    } else if (magnitude >= 0x38800000U) {
      narrow = shift_rounded(magnitude - 0x38000000U, 13);  // may carry into the exponent, up to infinity
    } else if (magnitude >= 0x33000000U) {                  // below 2^-14: a multiple of 2^-24
      const int exponent = static_cast<int>(magnitude >> 23);
      narrow = shift_rounded((magnitude & 0x7fffffU) | 0x800000U, 126 - exponent);
    }
    bits = static_cast<std::uint16_t>(sign | narrow);
  }
};

struct Brain {
  std::uint16_t bits;

  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  explicit Brain(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    bits = static_cast<std::uint16_t>(std::isnan(value) ? 0x7fc0U : shift_rounded(wide, 16));
  }
};

template <class T> using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T> T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(static_cast<Bits>(a) + static_cast<Bits>(b)));
  } else {
    return a + b;
  }
}

template <class T> T times(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(static_cast<Bits>(a) * static_cast<Bits>(b)));
  } else {
    return a * b;
  }
}

template <class T> T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
  return a > b ? a : b;
}

template <class T> T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
  return a < b ? a : b;
}

template <class T> T combine_two(RedOp op, T a, T b) {
  switch (op) {
    case PROD: return times(a, b);
    case MAX: return larger(a, b);
    case MIN: return smaller(a, b);
    case SUM:
    case AVG: break;
  }
  return plus(a, b);
}

template <class T> Wide<T> load(const char* memory, std::size_t i) {
  std::uint8_t bytes[sizeof(T)];
  std::memcpy(bytes, memory + i * sizeof(T), sizeof(T));
  return static_cast<Wide<T>>(std::bit_cast<T>(bytes));
}

// Of `ranks` contributions: neighbours first.
template <class T>
Wide<T> tree(RedOp op, const char* const* contributions, std::size_t ranks, std::size_t i) {
  if (ranks == 1) return load<T>(contributions[0], i);
  const std::size_t left = std::bit_ceil(ranks) / 2;
  return combine_two(op, tree<T>(op, contributions, left, i),
                     tree<T>(op, contributions + left, ranks - left, i));
}

template <class T>
void combine_as(RedOp op, const std::vector<const char*>& contributions, char* result, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Wide<T> value = tree<T>(op, contributions.data(), contributions.size(), i);
    if (op == AVG) value = static_cast<Wide<T>>(value / static_cast<Wide<T>>(contributions.size()));
    const auto narrow = static_cast<T>(value);
    std::memcpy(result + i * sizeof(T), &narrow, sizeof(T));
  }
}

}  // namespace

std::size_t element_size(DataType type) {
  switch (type) {
    case INT8:
    case UINT8: return 1;
    case FLOAT16:
    case BFLOAT16: return 2;
    case INT32:
    case UINT32:
    case FLOAT32: return 4;
    case INT64:
    case UINT64:
    case FLOAT64: return 8;
  }
  return 0;
}

void combine(DataType type, RedOp op, const std::vector<const char*>& contributions, char* result,
             std::size_t count) {
  switch (type) {
    case INT8: return combine_as<std::int8_t>(op, contributions, result, count);
    case UINT8: return combine_as<std::uint8_t>(op, contributions, result, count);
    case INT32: return combine_as<std::int32_t>(op, contributions, result, count);
    case UINT32: return combine_as<std::uint32_t>(op, contributions, result, count);
    case INT64: return combine_as<std::int64_t>(op, contributions, result, count);
    case UINT64: return combine_as<std::uint64_t>(op, contributions, result, count);
    case FLOAT16: return combine_as<Half>(op, contributions, result, count);
    case FLOAT32: return combine_as<float>(op, contributions, result, count);
    case FLOAT64: return combine_as<double>(op, contributions, result, count);
    case BFLOAT16: return combine_as<Brain>(op, contributions, result, count);
  }
}

}  // namespace lockstep::nccl::stand_in
