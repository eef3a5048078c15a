// Boxes of tensors as bytes. Pure.
//
//   place_box(piece, {0, 2}, {3, 2}, {3, 6}, 4, whole);   // columns 2 and 3 of a float32 [3, 6]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Copies a box of `sizes`, whose elements of `element` bytes lie row by row, to `offsets` of a tensor of
// `shape` that lies row by row in `whole`. The box lies within the tensor, and both spans have its bytes.
void place_box(std::span<const std::byte> box, const std::vector<std::int64_t>& offsets,
               const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& shape,
               std::size_t element, std::span<std::byte> whole);

}  // namespace lockstep
