// The instruction sets the reduce kernels are compiled for; see reduce_kernels_body.h.
#pragma once

#include <cstddef>

#include "lockstep/base/dtype.h"

namespace lockstep {

using ReduceKernel = void (*)(const std::byte* const* inputs, int ranks, std::byte* const* outputs,
                              int output_count, std::size_t count);

// nullptr where can_reduce() is false.
namespace kernels_baseline {
ReduceKernel find_kernel(DType dtype, ReduceOp op);
}
namespace kernels_avx2 {
ReduceKernel find_kernel(DType dtype, ReduceOp op);
}
namespace kernels_avx512 {
ReduceKernel find_kernel(DType dtype, ReduceOp op);
}

}  // namespace lockstep
