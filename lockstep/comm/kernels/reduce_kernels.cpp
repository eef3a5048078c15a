#include "lockstep/comm/kernels/reduce_kernels.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/kernels/reduce_kernels_table.h"

namespace lockstep {
namespace {

struct Kernels {
  ReduceKernel (*find_kernel)(DType, ReduceOp);
  Conversions (*find_conversions)(DType);
};
constexpr Kernels BASELINE{kernels_baseline::find_kernel, kernels_baseline::find_conversions};

#ifdef __x86_64__
bool converts_float16() {
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int c = 0;
  unsigned int d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & static_cast<unsigned int>(bit_F16C)) != 0;
}
#endif

Kernels choose_kernels() {
#ifdef __x86_64__
  if (!converts_float16()) return BASELINE;
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0) {
    return {kernels_avx512::find_kernel, kernels_avx512::find_conversions};
  }
  if (__builtin_cpu_supports("avx2") != 0) return {kernels_avx2::find_kernel, kernels_avx2::find_conversions};
#endif
  return BASELINE;
}

const Kernels& best_kernels() {
  static const Kernels best = choose_kernels();
  return best;
}

Conversions conversions_of(DType dtype) {
  const Conversions conversions = best_kernels().find_conversions(dtype);
  if (conversions.widen == nullptr) throw InternalError(str(name_of(dtype), " is not widened to float32"));
  return conversions;
}

template <typename T> void divide_all(std::byte* values, std::size_t count, int ranks) {
  auto* const first = reinterpret_cast<T*>(values);
  for (std::size_t i = 0; i < count; ++i) first[i] /= static_cast<T>(ranks);
}

}  // namespace

void divide(DType dtype, std::byte* values, std::size_t count, int ranks) {
  switch (dtype) {
    case DType::FLOAT32: return divide_all<float>(values, count, ranks);
    case DType::COMPLEX64: return divide_all<float>(values, 2 * count, ranks);
    case DType::FLOAT64: return divide_all<double>(values, count, ranks);
    case DType::COMPLEX128: return divide_all<double>(values, 2 * count, ranks);
    default: throw InternalError(str("a sum of ", name_of(dtype), " is not divided in place"));
  }
}

void widen(DType dtype, const std::byte* from, std::byte* to, std::size_t count) {
  conversions_of(dtype).widen(from, to, count);
}
void narrow(DType dtype, const std::byte* from, std::byte* to, std::size_t count) {
  conversions_of(dtype).narrow(from, to, count);
}

bool can_reduce(DType dtype, ReduceOp op) { return kernels_baseline::find_kernel(dtype, op) != nullptr; }

void reduce(DType dtype, ReduceOp op, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, std::size_t count, bool past_caches) {
  const ReduceKernel kernel = best_kernels().find_kernel(dtype, op);
  if (kernel == nullptr) throw InternalError(str("no kernel for ", name_of(op), " of ", name_of(dtype)));
  kernel(inputs.data(), static_cast<int>(inputs.size()), outputs.data(), static_cast<int>(outputs.size()),
         count, past_caches);
}

}  // namespace lockstep
