#include "lockstep/base/dtype.h"

#include <array>

namespace lockstep {
namespace {

struct Row {
  std::string_view name;
  std::size_t size;
};

// Indexed by DType, in the order of its declaration.
constexpr std::array<Row, DTYPE_COUNT> ROWS = {{
    {"float64", 8},
    {"float32", 4},
    {"float16", 2},
    {"bfloat16", 2},
    {"int8", 1},
    {"uint8", 1},
    {"int16", 2},
    {"uint16", 2},
    {"int32", 4},
    {"uint32", 4},
    {"int64", 8},
    {"uint64", 8},
    {"bool", 1},
    {"complex64", 8},
    {"complex128", 16},
}};

constexpr std::array<std::string_view, REDUCE_OP_COUNT> OP_NAMES = {"sum", "avg",  "product", "min",
                                                                    "max", "band", "bor",     "bxor"};

}  // namespace

std::size_t size_of(DType dtype) { return ROWS.at(static_cast<std::size_t>(dtype)).size; }
std::string_view name_of(DType dtype) { return ROWS.at(static_cast<std::size_t>(dtype)).name; }
std::string_view name_of(ReduceOp op) { return OP_NAMES.at(static_cast<std::size_t>(op)); }

bool is_floating(DType dtype) { return dtype <= DType::BFLOAT16; }
bool is_complex(DType dtype) { return dtype == DType::COMPLEX64 || dtype == DType::COMPLEX128; }

}  // namespace lockstep
