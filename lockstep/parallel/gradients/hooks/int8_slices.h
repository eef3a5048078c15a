// Int8Slices: real numbers as 8-bit integers, each chunk with a scale of its own, in as many slices as there
// are ranks.
//
//   const Int8Slices<float> slices(numbers.size(), group.size());
//   slices.quantise(numbers, out);          // all slices, one after the other, slices.bytes() each
//   slices.average(in, mean);               // one slice of each rank's -> their average, quantised again
//   slices.read(all, first, into);          // numbers first, first + 1, ... of all slices
//
// number = integer * scale; scale = largest magnitude of the chunk / STEPS, integers rounded to nearest, ties
// to even. A chunk with something not finite has a scale that is not, and is NaN when read. What is beyond
// the last number counts as zero.
//
// Real is float or double. One pass over memory each: a chunk is done while it is in the first-level cache.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

template <typename Real> class Int8Slices {
 public:
  static constexpr int STEPS = 127;          // from zero to the largest magnitude
  static constexpr std::size_t CHUNK = 512;  // or fewer, if there are not so many for each rank

  Int8Slices(std::size_t numbers, std::size_t ranks);

  // Of one slice, a multiple of 8: all scales, then all integers.
  std::size_t bytes() const { return bytes_; }

  void quantise(std::span<const Real> numbers, std::span<std::byte> slices) const;
  void average(std::span<const std::byte> slices, std::span<std::byte> mean) const;
  void read(std::span<const std::byte> slices, std::size_t first, std::span<Real> into) const;

 private:
  // Of one slice.
  std::size_t at_scale(std::size_t row) const { return row * sizeof(Real); }
  std::size_t at_integers(std::size_t row) const { return rows_ * sizeof(Real) + row * chunk_; }

  std::size_t ranks_, chunk_, rows_;  // `rows` chunks in each slice
  std::size_t bytes_;
};

extern template class Int8Slices<float>;
extern template class Int8Slices<double>;

}  // namespace lockstep
