// reduce: combines the same stretch of N ranks' buffers and writes the result to any number of places. The
// only place that knows element types and operators together.
//
//   reduce(DType::FLOAT32, ReduceOp::AVG, {mine, theirs}, {mine, theirs}, count);
//
// Order       one balanced binary tree over the inputs: neighbours first, ((0+1)+(2+3)); three inputs give
//             (0+1)+2.
// Precision   float16 and bfloat16 are widened to float32, combined, and rounded once, to nearest even; AVG
//             divides once. Compiled with -ffp-contract=off, so the bits do not depend on the instruction set
//             chosen at run time (baseline, AVX2 or AVX-512).
// Aliasing    an output may be one of the inputs; buffers need the alignment of their element type.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/dtype.h"
#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Whether torch reduces this dtype with this op: no AVG of integers or bool; complex numbers know SUM and AVG
// only.
bool can_reduce(DType dtype, ReduceOp op);

// What AVG does with a sum over `ranks` ranks. Requires can_reduce(dtype, AVG); not float16 and bfloat16,
// whose sums are float32.
void divide(DType dtype, std::byte* values, std::size_t count, int ranks);

// float16 or bfloat16 to float32, which is exact, and back, rounded to nearest even. No aliasing.
void widen(DType dtype, const std::byte* from, std::byte* to, std::size_t count);
void narrow(DType dtype, const std::byte* from, std::byte* to, std::size_t count);

// Requires can_reduce() and 1 <= inputs.size() <= 2^16.
// `past_caches`: one output that is more than the caches hold, and no input. Where there is a kernel for it
// (up to four ranks, no
// 16-bit floats, x86-64) it goes to memory in whole lines, which an ordinary store reads first.
void reduce(DType dtype, ReduceOp op, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, std::size_t count, bool past_caches = false);

}  // namespace lockstep
