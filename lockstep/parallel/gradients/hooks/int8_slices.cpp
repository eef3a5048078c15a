#include "lockstep/parallel/gradients/hooks/int8_slices.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace lockstep {
namespace {

constexpr int STEPS = Int8Slices<float>::STEPS;

std::size_t divided_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// Returns NaN if there is one, else infinity if there is one, because the bits without the sign have that
// order.
template <typename Real> Real largest_magnitude(const Real* numbers, std::size_t count) {
  using Bits = std::conditional_t<sizeof(Real) == 4, std::int32_t, std::int64_t>;
  Bits largest = 0;
  for (std::size_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<Bits>(numbers[i]) & std::numeric_limits<Bits>::max());
  return std::bit_cast<Real>(largest);
}

template <typename Real>
void quantise_chunk(const Real* numbers, std::size_t count, std::byte* scale_at, std::byte* integers) {
  const Real scale = largest_magnitude(numbers, count) / STEPS;
  std::memcpy(scale_at, &scale, sizeof scale);
  if (!std::isfinite(scale) || scale == 0) {
    std::fill_n(integers, count, std::byte{0});
    return;
  }
  // At this size a number has no bits for fractions, so adding it rounds. (The oldest supported processors
  // have no instruction that rounds several numbers at once.)
  constexpr Real WHOLE = Real{3} * (std::uint64_t{1} << (std::numeric_limits<Real>::digits - 2U));
  for (std::size_t i = 0; i < count; ++i) {
    const int steps =
        static_cast<int>((numbers[i] / scale + WHOLE) - WHOLE);  // beyond 127 if the scale is subnormal
    integers[i] = static_cast<std::byte>(std::clamp(steps, -STEPS, STEPS));
  }
}

template <typename Real> Real scale_at(const std::byte* place) {
  Real scale = 0;
  std::memcpy(&scale, place, sizeof scale);
  return scale;
}

template <typename Real>
void read_chunk(const std::byte* integers, std::size_t count, Real scale, Real* into) {
  const auto* const steps = reinterpret_cast<const std::int8_t*>(integers);
  for (std::size_t i = 0; i < count; ++i) into[i] = static_cast<Real>(steps[i]) * scale;
}

template <typename Real> void add_chunk(const std::byte* integers, std::size_t count, Real scale, Real* sum) {
  const auto* const steps = reinterpret_cast<const std::int8_t*>(integers);
  for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<Real>(steps[i]) * scale;
}

}  // namespace

template <typename Real>
Int8Slices<Real>::Int8Slices(std::size_t numbers, std::size_t ranks)
    : ranks_(ranks),
      chunk_(std::clamp<std::size_t>(divided_up(numbers, ranks), 1, CHUNK)),
      rows_(std::max<std::size_t>(divided_up(numbers, ranks * chunk_), 1)),
      bytes_(divided_up(at_integers(rows_), 8) * 8) {}

template <typename Real>
void Int8Slices<Real>::quantise(std::span<const Real> numbers, std::span<std::byte> slices) const {
  for (std::size_t r = 0; r < ranks_; ++r) {
    std::byte* const slice = slices.subspan(r * bytes_, bytes_).data();
    for (std::size_t row = 0; row < rows_; ++row) {
      const auto chunk = numbers.first(std::min(chunk_, numbers.size()));
      numbers = numbers.subspan(chunk.size());
      std::byte* const integers = slice + at_integers(row);
      quantise_chunk(chunk.data(), chunk.size(), slice + at_scale(row), integers);
      std::fill_n(integers + chunk.size(), chunk_ - chunk.size(), std::byte{0});
    }
  }
}

template <typename Real>
void Int8Slices<Real>::average(std::span<const std::byte> slices, std::span<std::byte> mean) const {
  std::array<Real, CHUNK> sum;
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::byte* const slice = slices.subspan(r * bytes_, bytes_).data();
      const Real scale = scale_at<Real>(slice + at_scale(row));
      const std::byte* const integers = slice + at_integers(row);
      r == 0 ? read_chunk(integers, chunk_, scale, sum.data())
             : add_chunk(integers, chunk_, scale, sum.data());
    }
    for (Real& number : std::span(sum).first(chunk_)) number /= static_cast<Real>(ranks_);
    quantise_chunk(sum.data(), chunk_, &mean[at_scale(row)], &mean[at_integers(row)]);
  }
}

template <typename Real>
void Int8Slices<Real>::read(std::span<const std::byte> slices, std::size_t first,
                            std::span<Real> into) const {
  while (!into.empty()) {
    const std::byte* const slice = slices.subspan(first / (rows_ * chunk_) * bytes_, bytes_).data();
    const std::size_t row = first % (rows_ * chunk_) / chunk_;
    const std::size_t column = first % chunk_;
    const std::size_t count = std::min(chunk_ - column, into.size());
    read_chunk(slice + at_integers(row) + column, count, scale_at<Real>(slice + at_scale(row)), into.data());
    first += count;
    into = into.subspan(count);
  }
}

template class Int8Slices<float>;
template class Int8Slices<double>;

}  // namespace lockstep
