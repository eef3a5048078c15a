// Walks the values of a strided tensor row by row.
//
//   std::vector<std::byte> part(elements_spanned(tensor) * element);     // from its first element
//   gather_rows(tensor, part, 1 << 20, [&](std::span<std::byte> piece) { file.write(piece); });
//
// The tensors have been checked before: their last element lies in their storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/formats/pickle_tensors.h"

namespace lockstep {

bool is_contiguous(const PtTensor& tensor);  // its values follow each other row by row

// Number of elements from the first to the last, both included; 0 for a tensor without elements.
std::uint64_t elements_spanned(const PtTensor& tensor);

// Gives the values row by row, in pieces of at most `piece` bytes.
void gather_rows(const PtTensor& tensor, std::span<const std::byte> part, std::size_t piece,
                 const std::function<void(std::span<std::byte>)>& take);

// Conjugates and negates values as the tensor says. The bytes hold whole elements.
void apply_sign_bits(const PtTensor& tensor, std::span<std::byte> values);

}  // namespace lockstep
