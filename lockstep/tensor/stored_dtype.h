// The words that files have for libtorch's dtypes: safetensors' own, and "C128" and "C32", which checkpoints
// hold and safetensors files do not.
//
//   stored_dtype(at::kBFloat16) == "BF16"
//   dtype_of_stored("F32") == at::kFloat
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace lockstep {

// "" for a dtype without a word: quantised ones and those that pack several elements into a byte.
std::string_view stored_dtype(at::ScalarType dtype);
std::optional<at::ScalarType> dtype_of_stored(std::string_view word);

}  // namespace lockstep
