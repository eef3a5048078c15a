// Int8Slices: real numbers as 8-bit integers. Each chunk has a scale of its own. There are as many slices as
// ranks.
//
//   const Int8Slices<float> slices(numbers.size(), group.size());
//   slices.quantise(numbers, out);          // all slices, one after the other, slices.bytes() each
//   slices.average(in, mean);               // one slice of each rank's -> their average, quantised again
//   slices.read(all, first, into);          // numbers first, first + 1, ... of all slices
//
// number = integer * scale. The scale is the largest magnitude of the chunk / STEPS, and integers are rounded
// to the nearest, ties to even. A chunk with a value that is not finite has such a scale, and reads as NaN.
// The numbers beyond the last one count as zero.
//
// Real is float or double. Each function passes over memory once: a chunk is finished while it is in the
// first-level cache.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

template <typename Real> class Int8Slices {
 public:
  static constexpr int STEPS = 127;          // from zero to the largest magnitude
  static constexpr std::size_t CHUNK = 512;  // fewer if there are not so many numbers for each rank

  Int8Slices(std::size_t numbers, std::size_t ranks);

  // Bytes of one slice, a multiple of 8: all scales, then all integers.
  std::size_t bytes() const { return bytes_; }

  void quantise(std::span<const Real> numbers, std::span<std::byte> slices) const;
  void average(std::span<const std::byte> slices, std::span<std::byte> mean) const;
  void read(std::span<const std::byte> slices, std::size_t first, std::span<Real> into) const;

 private:
  // Offsets within one slice.
  std::size_t at_scale(std::size_t row) const { return row * sizeof(Real); }
  std::size_t at_integers(std::size_t row) const { return rows_ * sizeof(Real) + row * chunk_; }

  std::size_t ranks_, chunk_, rows_;  // `rows` chunks in each slice
  std::size_t bytes_;
};

extern template class Int8Slices<float>;
extern template class Int8Slices<double>;

}  // namespace lockstep
