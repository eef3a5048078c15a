#include "lockstep/formats/tensor_strides.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/formats/tensor_dtypes.h"

namespace lockstep {
namespace {

constexpr auto SIGN = std::byte{0x80};  // in the last byte of a little-endian floating-point number

}  // namespace

bool is_contiguous(const PtTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::uint64_t elements_spanned(const PtTensor& tensor) {
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += static_cast<std::uint64_t>(tensor.shape[i] - 1) * static_cast<std::uint64_t>(tensor.strides[i]);
  }
  return last + 1;
}

void gather_rows(const PtTensor& tensor, std::span<const std::byte> part, std::size_t piece,
                 const std::function<void(std::span<std::byte>)>& take) {
  const std::size_t element = find_dtype(tensor.dtype)->size;
  const std::uint64_t count = size_of(tensor) / element;
  std::vector<std::int64_t> index(tensor.shape.size(), 0);
  std::uint64_t position = 0;  // in elements, of `index`
  std::vector<std::byte> gathered(std::min<std::uint64_t>(count, piece / element) * element);
  std::size_t filled = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(gathered.data() + filled, part.data() + position * element, element);
    filled += element;
    if (filled == gathered.size() || i + 1 == count) {
      take(std::span(gathered).first(filled));
      filled = 0;
    }
    for (std::size_t axis = index.size(); axis-- > 0;) {  // counts up, the last axis fastest
      position += static_cast<std::uint64_t>(tensor.strides[axis]);
      if (++index[axis] < tensor.shape[axis]) break;
      position -=
          static_cast<std::uint64_t>(tensor.shape[axis]) * static_cast<std::uint64_t>(tensor.strides[axis]);
      index[axis] = 0;
    }
  }
}

void apply_sign_bits(const PtTensor& tensor, std::span<std::byte> values) {
  if (!tensor.conjugate && !tensor.negative) return;
  const bool is_complex = tensor.dtype.starts_with('C');
  const std::size_t element = find_dtype(tensor.dtype)->size;
  const std::size_t number = is_complex ? element / 2 : element;
  for (std::size_t i = 0; i < values.size(); i += number) {
    const bool is_imaginary = is_complex && i % element != 0;
    if (tensor.negative != (tensor.conjugate && is_imaginary)) values[i + number - 1] ^= SIGN;
  }
}

}  // namespace lockstep
