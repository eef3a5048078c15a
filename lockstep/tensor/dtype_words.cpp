#include "lockstep/tensor/dtype_words.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::array WORDS = std::to_array<std::pair<at::ScalarType, std::string_view>>({
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
    {at::kFloat4_e2m1fn_x2, "F4_E2M1_X2"},
});

}  // namespace

std::string_view dtype_word(at::ScalarType type) {
  const auto* const row =
      std::find_if(WORDS.begin(), WORDS.end(), [&](const auto& entry) { return entry.first == type; });
  return row == WORDS.end() ? std::string_view() : row->second;
}

at::ScalarType dtype_of_word(std::string_view word) {
  const auto* const row =
      std::find_if(WORDS.begin(), WORDS.end(), [&](const auto& entry) { return entry.second == word; });
  if (row == WORDS.end()) throw InternalError(str("no dtype of libtorch for ", word));
  return row->first;
}

}  // namespace lockstep
