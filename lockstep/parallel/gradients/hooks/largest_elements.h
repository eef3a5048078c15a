// largest_places: the places of the elements of a tensor with the largest magnitudes.
//
//   const at::Tensor places = largest_places(gradient, 1000);   // 1000 of int64, ascending
//
// `values` is float32 or float64, contiguous, with one dimension. `count` is at most the number of elements.
// NaN counts as larger than every number, as in at::topk. Of equally large elements the first are taken. On
// the CPU it is a radix select (Alabi et al., "Fast k-selection algorithms for graphics processing units",
// ACM JEA 2012, section 3.2). It works on the bits without the sign, whose order is that of the magnitudes,
// in a few passes that only read. (at::topk makes a pair of value and place for every element.) On other
// devices it calls at::topk.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

at::Tensor largest_places(const at::Tensor& values, std::int64_t count);

}  // namespace lockstep
