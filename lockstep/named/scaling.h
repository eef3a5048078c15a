// scale: multiplies the elements of a buffer by a factor, in place. divide: divides integers by a whole
// number.
//
//   scale(data, count, DType::FLOAT16, 0.5);       // in float32, rounded once
//   scale(data, count, DType::INT32, 0.5);         // through double, towards zero
//   divide(data, count, DType::INT32, 4);          // the average of 4 ranks' sum, towards zero
//
// adasum_pair: Adasum's combination of two vectors, into the first:
//
//   a * (1 - a.b / (2 |a|^2)) + b * (1 - a.b / (2 |b|^2))
//
// with dot products and norms in double. A factor is 1 where its squared norm is below sqrt(DBL_MIN).
// Floating point only. Orthogonal vectors are added, equal ones averaged.
//
// Fails  InvalidArgument for a dtype that cannot be scaled (bool), or is not floating (Adasum).
#pragma once

#include <cstddef>

#include "lockstep/base/dtype.h"

namespace lockstep::named {

void scale(void* data, std::size_t count, DType dtype, double factor);
void divide(void* data, std::size_t count, DType dtype, int by);
void adasum_pair(void* a, const void* b, std::size_t count, DType dtype);

}  // namespace lockstep::named
