// The dtypes in files of tensors: their names in safetensors and in Python, and the storage class of a .pt
// file.
//
//   const TensorDtype* half = find_dtype("F16");  // and by_torch_name("float16")
//   half->size;                                   // 2
//
// Names that safetensors lacks (C32, C128, F4_E2M1_X2) are Lockstep's own, and occur in no safetensors file.
#pragma once

#include <cstddef>
#include <string_view>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct TensorDtype {
  std::string_view word;           // "F16"
  std::string_view torch_name;     // "float16"
  std::string_view storage_class;  // "HalfStorage"; empty: .pt files have an UntypedStorage and the dtype
  std::size_t size;                // bytes of one element
};

// nullptr if there is no such dtype.
const TensorDtype* find_dtype(std::string_view word);
const TensorDtype* by_torch_name(std::string_view name);
const TensorDtype* by_storage_class(std::string_view name);

}  // namespace lockstep
