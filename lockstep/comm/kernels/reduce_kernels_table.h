// The instruction sets the reduce kernels are compiled for; see reduce_kernels_body.h.
#pragma once

#include <cstddef>

#include "lockstep/base/dtype.h"

namespace lockstep {

using ReduceKernel = void (*)(const std::byte* const* inputs, int ranks, std::byte* const* outputs,
                              int output_count, std::size_t count, bool past_caches);

struct Conversions {
  void (*widen)(const std::byte* from, std::byte* to, std::size_t count) = nullptr;
  void (*narrow)(const std::byte* from, std::byte* to, std::size_t count) = nullptr;
};

// find_kernel: nullptr where can_reduce() is false. find_conversions: of float16 and bfloat16, null for
// others.
namespace kernels_baseline {
ReduceKernel find_kernel(DType dtype, ReduceOp op);
Conversions find_conversions(DType dtype);
}  // namespace kernels_baseline
namespace kernels_avx2 {
ReduceKernel find_kernel(DType dtype, ReduceOp op);
Conversions find_conversions(DType dtype);
}  // namespace kernels_avx2
namespace kernels_avx512 {
ReduceKernel find_kernel(DType dtype, ReduceOp op);
Conversions find_conversions(DType dtype);
}  // namespace kernels_avx512

}  // namespace lockstep
