#include "lockstep/formats/tensor_dtypes.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr auto ROWS = std::to_array<TensorDtype>({
    {"F64", "float64", "DoubleStorage", 8},
    {"F32", "float32", "FloatStorage", 4},
    {"F16", "float16", "HalfStorage", 2},
    {"BF16", "bfloat16", "BFloat16Storage", 2},
    {"I64", "int64", "LongStorage", 8},
    {"I32", "int32", "IntStorage", 4},
    {"I16", "int16", "ShortStorage", 2},
    {"I8", "int8", "CharStorage", 1},
    {"U64", "uint64", "", 8},
    {"U32", "uint32", "", 4},
    {"U16", "uint16", "", 2},
    {"U8", "uint8", "ByteStorage", 1},
    {"BOOL", "bool", "BoolStorage", 1},
    {"C128", "complex128", "ComplexDoubleStorage", 16},
    {"C64", "complex64", "ComplexFloatStorage", 8},
    {"C32", "complex32", "", 4},
    {"F8_E4M3", "float8_e4m3fn", "", 1},
    {"F8_E5M2", "float8_e5m2", "", 1},
    {"F8_E8M0", "float8_e8m0fnu", "", 1},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", "", 1},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", "", 1},
    {"F4_E2M1_X2", "float4_e2m1fn_x2", "", 1},
});

const TensorDtype* find(std::string_view TensorDtype::*column, std::string_view text) {
  const auto* const row =
      std::find_if(ROWS.begin(), ROWS.end(), [&](const TensorDtype& dtype) { return dtype.*column == text; });
  return row == ROWS.end() || text.empty() ? nullptr : row;
}

}  // namespace

const TensorDtype* find_dtype(std::string_view word) { return find(&TensorDtype::word, word); }
const TensorDtype* by_torch_name(std::string_view name) { return find(&TensorDtype::torch_name, name); }
const TensorDtype* by_storage_class(std::string_view name) { return find(&TensorDtype::storage_class, name); }

}  // namespace lockstep
