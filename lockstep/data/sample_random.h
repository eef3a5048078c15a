// SampleRandom: random numbers for one item of a data set in one epoch. Seed, epoch and index decide all of
// them. So an augmented image is the same on any rank, loader thread and machine, and after a restart.
//
//   SampleRandom random(seed, epoch, index);
//   const bool flips = random.uniform() < 0.5;
//   const auto left = random.below(9);                  // 0 to 8
//
// Generator: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014,
// figure 16), begun at a mix of the three numbers. Not for secrets.
// Threads     one at a time. Making one costs some nanoseconds.
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep {

class SampleRandom {
 public:
  SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t index)
      : state_(mix(mix(mix(seed) + static_cast<std::uint64_t>(epoch)) + static_cast<std::uint64_t>(index))) {}

  // Any of the 2^64 values.
  std::uint64_t next() { return mix(state_ += GAMMA); }

  // At least 0, below 1; multiples of 2^-53.
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

  // 0 to count - 1, each with the same probability. `count` is at least 1.
  std::int64_t below(std::int64_t count) {
    const auto n = static_cast<std::uint64_t>(count);
    const std::uint64_t uneven = (std::numeric_limits<std::uint64_t>::max() % n + 1) % n;  // 2^64 modulo n
    std::uint64_t value = next();
    while (value > std::numeric_limits<std::uint64_t>::max() - uneven) value = next();
    return static_cast<std::int64_t>(value % n);
  }

 private:
  static constexpr std::uint64_t GAMMA = 0x9e3779b97f4a7c15;
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27U) * 0x94d049bb133111eb;
    return z ^ z >> 31U;
  }

  std::uint64_t state_;
};

}  // namespace lockstep
