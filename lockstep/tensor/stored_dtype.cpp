#include "lockstep/tensor/stored_dtype.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr std::array STORED_DTYPES = std::to_array<std::pair<at::ScalarType, std::string_view>>({
    {at::kDouble, "F64"},
    {at::kFloat, "F32"},
    {at::kHalf, "F16"},
    {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},
    {at::kInt, "I32"},
    {at::kShort, "I16"},
    {at::kChar, "I8"},
    {at::kUInt64, "U64"},
    {at::kUInt32, "U32"},
    {at::kUInt16, "U16"},
    {at::kByte, "U8"},
    {at::kBool, "BOOL"},
    {at::kComplexDouble, "C128"},
    {at::kComplexFloat, "C64"},
    {at::kComplexHalf, "C32"},
    {at::kFloat8_e4m3fn, "F8_E4M3"},
    {at::kFloat8_e5m2, "F8_E5M2"},
    {at::kFloat8_e8m0fnu, "F8_E8M0"},
    {at::kFloat8_e4m3fnuz, "F8_E4M3FNUZ"},
    {at::kFloat8_e5m2fnuz, "F8_E5M2FNUZ"},
});

}  // namespace

std::string_view stored_dtype(at::ScalarType dtype) {
  const auto* const row = std::find_if(STORED_DTYPES.begin(), STORED_DTYPES.end(),
                                       [&](const auto& entry) { return entry.first == dtype; });
  return row == STORED_DTYPES.end() ? std::string_view() : row->second;
}

std::optional<at::ScalarType> dtype_of_stored(std::string_view word) {
  const auto* const row = std::find_if(STORED_DTYPES.begin(), STORED_DTYPES.end(),
                                       [&](const auto& entry) { return entry.second == word; });
  return row == STORED_DTYPES.end() ? std::nullopt : std::optional(row->first);
}

}  // namespace lockstep
