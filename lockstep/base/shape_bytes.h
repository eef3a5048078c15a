// The bytes of a tensor of a shape that comes from a file.
//
//   const auto bytes = shape_bytes(shape, 4);       // nullopt: the shape is none
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Returns nullopt for a negative size, and if the sizes that are not 0 multiply to more than 2^63 - 1 bytes.
// libtorch multiplies some of them, for the strides, even if another size is 0.
inline std::optional<std::uint64_t> shape_bytes(std::span<const std::int64_t> shape, std::size_t element) {
  std::uint64_t bytes = element;
  bool is_empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      is_empty = true;
    } else if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes) ||
               bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return std::nullopt;
    }
  }
  return is_empty ? 0 : bytes;
}

}  // namespace lockstep
