// FreeRanges: the set of free address ranges. It merges neighbours and allocates from the lowest range that
// is long enough. It handles plain numbers and touches no memory.
//
//   FreeRanges free;
//   free.insert({.begin = 0x1000, .bytes = 0x8000});
//   const std::uintptr_t place = free.take(0x2000).value();      // 0x1000
//   free.insert({.begin = place, .bytes = 0x2000});              // one range again
//
// First fit by address keeps used memory at low addresses and long free ranges at high addresses (Wilson et
// al., "Dynamic Storage Allocation: A Survey and Critical Review", 1995).
//
// Time        logarithmic in the number of ranges. Only take() is slower: it searches the ranges shorter than
//             twice the requested length, until one fits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct AddressRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;

  std::uintptr_t end() const { return begin + bytes; }
};

class FreeRanges {
 public:
  // Returns the merged range that contains `range` now. `range` must not overlap a free range; an empty one
  // has no effect.
  AddressRange insert(AddressRange range);
  void erase(AddressRange range);  // exactly one of the free ranges

  // Cuts `bytes` off the beginning of the lowest range that is long enough, and returns their address.
  // nullopt if no range is long enough.
  std::optional<std::uintptr_t> take(std::size_t bytes);

  // Empty, beginning at `address`, if no range ends there.
  AddressRange ending_at(std::uintptr_t address) const;
  AddressRange highest() const;  // there must be one
  std::size_t total_bytes() const { return total_; }

  // address -> bytes
  const std::map<std::uintptr_t, std::size_t>& all() const { return ranges_; }

 private:
  using Addresses = std::set<std::uintptr_t>;
  Addresses& of_length(std::size_t bytes);

  std::map<std::uintptr_t, std::size_t> ranges_;
  std::array<Addresses, 64> by_length_;  // [k]: begins of ranges with 2^k to 2^(k+1) - 1 bytes
  std::size_t total_ = 0;
};

}  // namespace lockstep
