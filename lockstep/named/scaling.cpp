#include "lockstep/named/scaling.h"

#include <cfloat>
#include <cmath>
#include <complex>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

#define LOCKSTEP_KERNELS kernels_named
#include "lockstep/comm/kernels/element_types_body.h"

namespace lockstep::named {
namespace {

using kernels_named::Brain;
using kernels_named::Half;
using kernels_named::Same;

[[noreturn]] void refuse(const char* what, DType dtype) {
  throw InvalidArgument(str("named operations: ", what, " is not there for ", name_of(dtype)));
}

template <typename Type, typename Change>
void change_all(void* data, std::size_t count, const Change& change) {
  auto* elements = static_cast<typename Type::Stored*>(data);
  for (std::size_t i = 0; i < count; ++i) elements[i] = Type::store(change(Type::load(elements[i])));
}

template <typename Integer> void scale_integers(void* data, std::size_t count, double factor) {
  change_all<Same<Integer>>(data, count, [factor](Integer value) {
    return static_cast<Integer>(static_cast<double>(value) * factor);
  });
}

template <typename Real> auto times(double factor) {
  return [factor = static_cast<Real>(factor)](auto value) { return value * factor; };
}

// Calls `body` with the integer type of the dtype; false if it is none.
template <typename Body> bool of_integer(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::INT8: return body(std::int8_t{}), true;
    case DType::UINT8: return body(std::uint8_t{}), true;
    case DType::INT16: return body(std::int16_t{}), true;
    case DType::UINT16: return body(std::uint16_t{}), true;
    case DType::INT32: return body(std::int32_t{}), true;
    case DType::UINT32: return body(std::uint32_t{}), true;
    case DType::INT64: return body(std::int64_t{}), true;
    case DType::UINT64: return body(std::uint64_t{}), true;
    default: return false;
  }
}

double factor_of(double dot, double norm) {
  return norm < std::sqrt(DBL_MIN) ? 1.0 : 1.0 - dot / (2.0 * norm);
}

template <typename Type> void adasum_of(void* first, const void* second, std::size_t count) {
  auto* a = static_cast<typename Type::Stored*>(first);
  const auto* b = static_cast<const typename Type::Stored*>(second);
  double dot = 0, norm_a = 0, norm_b = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = Type::load(a[i]), y = Type::load(b[i]);
    dot += x * y;
    norm_a += x * x;
    norm_b += y * y;
  }
  const double of_a = factor_of(dot, norm_a), of_b = factor_of(dot, norm_b);
  for (std::size_t i = 0; i < count; ++i) {
    const double sum = of_a * Type::load(a[i]) + of_b * Type::load(b[i]);
    a[i] = Type::store(static_cast<typename Type::Acc>(sum));
  }
}

}  // namespace

void scale(void* data, std::size_t count, DType dtype, double factor) {
  if (factor == 1.0) return;
  if (of_integer(dtype, [&](auto sample) { scale_integers<decltype(sample)>(data, count, factor); })) return;
  switch (dtype) {
    case DType::FLOAT64: return change_all<Same<double>>(data, count, times<double>(factor));
    case DType::FLOAT32: return change_all<Same<float>>(data, count, times<float>(factor));
    case DType::FLOAT16: return change_all<Half>(data, count, times<float>(factor));
    case DType::BFLOAT16: return change_all<Brain>(data, count, times<float>(factor));
    case DType::COMPLEX64: return change_all<Same<std::complex<float>>>(data, count, times<float>(factor));
    case DType::COMPLEX128: return change_all<Same<std::complex<double>>>(data, count, times<double>(factor));
    default: refuse("a factor", dtype);
  }
}

void divide(void* data, std::size_t count, DType dtype, int by) {
  const bool done = of_integer(dtype, [&](auto sample) {
    using Integer = decltype(sample);
    // In 64 bits, where a small type has no room for `by`.
    using Wide = std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>;
    change_all<Same<Integer>>(data, count, [by](Integer value) {
      return static_cast<Integer>(static_cast<Wide>(value) / static_cast<Wide>(by));
    });
  });
  if (!done) refuse("an average", dtype);
}

void adasum_pair(void* a, const void* b, std::size_t count, DType dtype) {
  switch (dtype) {
    case DType::FLOAT64: return adasum_of<Same<double>>(a, b, count);
    case DType::FLOAT32: return adasum_of<Same<float>>(a, b, count);
    case DType::FLOAT16: return adasum_of<Half>(a, b, count);
    case DType::BFLOAT16: return adasum_of<Brain>(a, b, count);
    default: refuse("Adasum", dtype);
  }
}

}  // namespace lockstep::named
