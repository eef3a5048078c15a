// The names of libtorch's dtypes in files (formats/tensor_dtypes.h).
//
//   dtype_word(at::kHalf);           // "F16"; empty: no file holds this dtype
//   dtype_of_word("F16");            // at::kHalf
#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

namespace lockstep {

std::string_view dtype_word(at::ScalarType type);
at::ScalarType dtype_of_word(std::string_view word);  // throws InternalError for an unknown name

}  // namespace lockstep
