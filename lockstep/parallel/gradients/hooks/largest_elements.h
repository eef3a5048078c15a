// largest_places: where the elements of a tensor are that are largest in magnitude.
//
//   const at::Tensor places = largest_places(gradient, 1000);   // 1000 of int64, ascending
//
// `values` is float32 or float64, of one dimension and contiguous; `count` at most its elements. NaN is
// larger than everything, as for at::topk. Of equally large ones the first are taken. On the CPU a radix
// select (Alabi et al., "Fast k-selection algorithms for graphics processing units", ACM JEA 2012, section
// 3.2) of the bits without the sign, which order like the magnitudes: a few passes that only read, where
// at::topk makes pairs of all elements and their places. On other devices at::topk.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

at::Tensor largest_places(const at::Tensor& values, std::int64_t count);

}  // namespace lockstep
