// Numbers as 8-bit integers and back, against the formula of each number.
#include "lockstep/parallel/gradients/hooks/int8_slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lockstep {
namespace {

template <typename Real> std::vector<Real> some_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Real> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = static_cast<Real>(normal(random) * std::pow(10, static_cast<int>(i / 700 % 9) - 4));
  return numbers;
}

template <typename Real>
std::vector<Real> through(const std::vector<Real>& numbers, std::size_t ranks, std::size_t size) {
  const Int8Slices<Real> slices(size, ranks);
  std::vector<std::byte> message(ranks * slices.bytes(), std::byte{0x55});
  slices.quantise(std::span<const Real>(numbers), message);
  std::vector<Real> back(numbers.size());
  slices.read(message, 0, std::span<Real>(back));
  return back;
}

// integer * scale, in double: nearest, ties to even.
template <typename Real> double formula(Real number, Real largest) {
  const Real scale = largest / 127;
  const Real steps = number / scale;
  return static_cast<double>(static_cast<Real>(std::nearbyint(std::clamp<Real>(steps, -127, 127))) * scale);
}

template <typename Real> void check_every_number() {
  for (const std::size_t ranks : {1UL, 2UL, 3UL, 4UL}) {
    for (const std::size_t size : {1UL, 2UL, 511UL, 512UL, 513UL, 1024UL, 5000UL, 40000UL}) {
      const auto numbers = some_numbers<Real>(size, static_cast<unsigned>(size + ranks));
      const auto back = through(numbers, ranks, size);
      const std::size_t chunk = std::min<std::size_t>((size + ranks - 1) / ranks, 512);
      for (std::size_t i = 0; i < size; ++i) {
        const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(i / chunk * chunk);
        Real largest = 0;
        for (auto x = begin; x != numbers.end() && x != begin + static_cast<std::ptrdiff_t>(chunk); ++x)
          largest = std::max(largest, std::abs(*x));
        ASSERT_EQ(static_cast<double>(back[i]), formula(numbers[i], largest))
            << ranks << " ranks, " << size << " numbers, number " << i;
        ASSERT_LE(std::abs(back[i] - numbers[i]), largest / 127 * static_cast<Real>(0.50001));
      }
    }
  }
}

TEST(Int8Slices, EachNumberIsTheNearestMultipleOfItsChunksScale) {
  check_every_number<float>();
  check_every_number<double>();
}

TEST(Int8Slices, TiesGoToTheEvenOne) {
  std::vector<float> numbers = {127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 126.5F};
  EXPECT_EQ(through(numbers, 1, numbers.size()), (std::vector<float>{127, 0, 2, 2, 0, -2, -2, 126}));
}

TEST(Int8Slices, WhatIsNotFiniteMakesItsChunkNaN) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> numbers(2 * 512, 1);
    numbers[700] = bad;
    const auto back = through(numbers, 1, numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      ASSERT_EQ(std::isnan(back[i]), i >= 512) << bad << ", number " << i;
  }
}

TEST(Int8Slices, ZerosAndTheSmallestNumbersAreOffByNoMoreThanTheyAre) {
  EXPECT_EQ(through(std::vector<float>(600), 2, 600), std::vector<float>(600));
  constexpr float TINY = std::numeric_limits<float>::denorm_min();
  for (const float largest : {TINY, 63 * TINY, 100 * TINY, 190 * TINY, 1000 * TINY}) {
    const std::vector<float> numbers = {largest, -largest, TINY, 0};
    const auto back = through(numbers, 1, numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      EXPECT_LE(std::abs(back[i] - numbers[i]), largest) << largest / TINY << ", number " << i;
  }
  constexpr float HUGE_NUMBER = std::numeric_limits<float>::max() / 2;
  EXPECT_NEAR(through(std::vector<float>{HUGE_NUMBER, 1}, 1, 2)[0], HUGE_NUMBER, HUGE_NUMBER * 1e-6);
}

TEST(Int8Slices, AnyRangeCanBeRead) {
  constexpr std::size_t SIZE = 5000;
  const auto numbers = some_numbers<float>(SIZE, 1);
  for (const std::size_t ranks : {1UL, 3UL}) {
    const auto whole = through(numbers, ranks, SIZE);
    const Int8Slices<float> slices(SIZE, ranks);
    std::vector<std::byte> message(ranks * slices.bytes());
    slices.quantise(std::span<const float>(numbers), message);
    for (const std::size_t first : {0UL, 1UL, 511UL, 512UL, 1700UL, 4999UL}) {
      for (const std::size_t count : {0UL, 1UL, 600UL, 3000UL}) {
        std::vector<float> some(std::min(count, SIZE - first));
        slices.read(message, first, std::span<float>(some));
        EXPECT_TRUE(std::equal(some.begin(), some.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)))
            << ranks << " ranks, " << count << " from " << first;
      }
    }
  }
}

// Of numbers that travel without loss, each rank's slice of all; 127 in each chunk, so that a step is 1.
TEST(Int8Slices, TheAverageIsThatOfAllRanks) {
  constexpr std::size_t RANKS = 4;
  constexpr std::size_t EACH = 3 * 512;
  const Int8Slices<double> slices(RANKS * EACH, RANKS);
  const auto number = [](std::size_t rank, std::size_t i) {
    return i % 512 == 0 ? 127.0 : static_cast<double>(4 * (i % 30)) + (rank < 2 ? 8.0 : -8.0);
  };
  for (std::size_t slice = 0; slice < RANKS; ++slice) {
    std::vector<std::byte> received(RANKS * slices.bytes());
    for (std::size_t r = 0; r < RANKS; ++r) {
      std::vector<double> numbers(RANKS * EACH);
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(r, i);
      std::vector<std::byte> sent(RANKS * slices.bytes());
      slices.quantise(std::span<const double>(numbers), sent);
      std::copy_n(&sent[slice * slices.bytes()], slices.bytes(), &received[r * slices.bytes()]);
    }
    std::vector<std::byte> all(RANKS * slices.bytes());
    slices.average(received, std::span(all).subspan(slice * slices.bytes(), slices.bytes()));
    std::vector<double> mean(EACH);
    slices.read(all, slice * EACH, std::span<double>(mean));
    for (std::size_t i = 0; i < EACH; ++i)
      ASSERT_EQ(mean[i], i % 512 == 0 ? 127.0 : static_cast<double>(4 * ((slice * EACH + i) % 30))) << i;
  }
}

}  // namespace
}  // namespace lockstep
