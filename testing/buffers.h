// Buffers for the conformance tests: in every kind of memory, filled with known values, with guards on both
// sides.
//
//   Buffer<float> x(world(), Memory::SHARED, 1000);
//   x.fill([&](std::size_t i) { return reference::sample<float>(rank(), i); });
//   comm::all_reduce(world(), x.span());
//   EXPECT_EQ(x.difference([&](std::size_t i) { return expected(i); }), "");
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/process_group.h"
#include "testing/reference.h"

namespace lockstep {

enum class Memory { PRIVATE, PRIVATE_ODD, SHARED, SHARED_ODD };  // ODD: one element behind the aligned start
inline constexpr Memory MEMORIES[] = {Memory::PRIVATE, Memory::PRIVATE_ODD, Memory::SHARED,
                                      Memory::SHARED_ODD};
inline constexpr const char* MEMORY_NAMES[] = {"private", "private, odd", "shared", "shared, odd"};

// Values repeat after this many elements, so that a test of a million costs 97 references. Prime: no slice
// hides in it.
inline constexpr std::size_t PERIOD = 97;

template <typename T> class Buffer {
 public:
  Buffer(const ProcessGroup& group, Memory memory, std::size_t count) : count_(count) {
    const bool odd = memory == Memory::PRIVATE_ODD || memory == Memory::SHARED_ODD;
    first_ = GUARD + (odd ? 1 : 0);
    const std::size_t bytes = (first_ + count + GUARD) * sizeof(T);
    if (memory == Memory::SHARED || memory == Memory::SHARED_ODD) {
      memory_ = group.allocate_shared(bytes);
    } else {
      memory_ = std::shared_ptr<void>(std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
    }
    std::memset(memory_.get(), GUARD_BYTE, bytes);
  }

  std::span<T> span() const { return {static_cast<T*>(memory_.get()) + first_, count_}; }

  // Element i becomes value(i % PERIOD).
  template <typename Value> void fill(Value value) const {
    const auto values = table(value);
    for_each_period([&](std::size_t i, std::size_t length) {
      std::memcpy(static_cast<void*>(&span()[i]), values.get(), length * sizeof(T));
    });
  }

  // Empty if every element has the bits of expected(i % PERIOD) and nothing around them was touched; else
  // what is different.
  template <typename Value> std::string difference(Value expected) const {
    const auto values = table(expected);
    std::string text;
    for_each_period([&](std::size_t first, std::size_t length) {
      if (std::memcmp(&span()[first], values.get(), length * sizeof(T)) == 0) return;
      for (std::size_t i = first; i < first + length && text.empty(); ++i) {
        if (reference::same<T>(span()[i], values[i - first])) continue;
        text =
            str("element ", i, " of ", count_, " is ", hex(span()[i]), ", expected ", hex(values[i - first]));
      }
    });
    const auto* bytes = static_cast<const unsigned char*>(memory_.get());
    const auto* end = bytes + (first_ + count_) * sizeof(T);
    const auto untouched = [](unsigned char byte) { return byte == GUARD_BYTE; };
    if (!std::all_of(bytes, bytes + first_ * sizeof(T), untouched) ||
        !std::all_of(end, end + GUARD * sizeof(T), untouched)) {
      text += " and memory outside of the buffer was written";
    }
    return text;
  }

 private:
  static constexpr std::size_t GUARD = 64;  // elements
  static constexpr unsigned char GUARD_BYTE = 0xa5;

  template <typename Value>
  std::unique_ptr<T[]> table(Value value) const {  // no vector: there is one of bool
    auto values = std::make_unique<T[]>(PERIOD);
    for (std::size_t i = 0; i < std::min(PERIOD, count_); ++i) values[i] = value(i);
    return values;
  }

  // body(first, length) for each stretch of at most PERIOD elements.
  template <typename Body> void for_each_period(Body body) const {
    for (std::size_t i = 0; i < count_; i += PERIOD) body(i, std::min(PERIOD, count_ - i));
  }

  static std::string hex(const T& value) {
    std::string text = "0x";
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    for (std::size_t i = sizeof(T); i-- > 0;) text += str(std::hex, bytes[i] / 16, bytes[i] % 16);
    return text;
  }

  std::size_t count_;
  std::size_t first_ = 0;
  std::shared_ptr<void> memory_;
};

// As gmock's Each(), for vectors that are too long for it.
template <typename T> bool all_are(const std::vector<T>& values, T expected) {
  return std::all_of(values.begin(), values.end(), [&](const T& value) { return value == expected; });
}

// How many elements belong to rank r: the same for all, or different for each and none for rank 0.
inline std::size_t count_of(bool even, std::size_t base, int r) {
  return even ? base : base * static_cast<std::size_t>(r % 3) + static_cast<std::size_t>(r);
}

// One value per rank, for reference::combine.
template <typename T> std::vector<T> samples_of_all(int size, std::size_t index, std::uint64_t seed) {
  std::vector<T> values;
  for (int r = 0; r < size; ++r) values.push_back(reference::sample<T>(r, index, seed));
  return values;
}

}  // namespace lockstep
