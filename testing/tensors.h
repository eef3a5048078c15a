// Tensors with known values in every dtype, for tests that state their answer as a formula.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::testing {

inline constexpr at::ScalarType DTYPES[] = {at::kDouble, at::kFloat,        at::kHalf,         at::kBFloat16,
                                            at::kChar,   at::kByte,         at::kShort,        at::kUInt16,
                                            at::kInt,    at::kUInt32,       at::kLong,         at::kUInt64,
                                            at::kBool,   at::kComplexFloat, at::kComplexDouble};

// 0, 1, 2, ... 6, 0, ... + shift in any shape and dtype; small enough that sums are exact.
inline at::Tensor counting(at::IntArrayRef sizes, at::ScalarType dtype, double shift) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return (at::arange(count, at::kDouble).remainder(7) + shift).reshape(sizes).to(dtype);
}

inline at::Tensor random_values(at::IntArrayRef shape, std::uint64_t seed,
                                at::ScalarType type = at::kDouble) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kDouble).to(type);
}

inline double sum_of_ranks(int size) { return size * (size - 1) / 2.0; }

// What all_reduce of counting(sizes, dtype, rank) must give.
inline at::Tensor expected_sum(at::IntArrayRef sizes, at::ScalarType dtype, int size) {
  at::Tensor sum = counting(sizes, at::kDouble, 0) * size + sum_of_ranks(size);
  return dtype == at::kBool ? sum.ne(0) : sum.to(dtype);
}

inline bool same_values(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         a.to(at::kComplexDouble).equal(b.to(at::kComplexDouble));
}

}  // namespace lockstep::testing
