// FreeRanges: which ranges of addresses are free. Neighbours are merged, and the lowest range that is long
// enough is taken from. Plain numbers: it touches no memory.
//
//   FreeRanges free;
//   free.insert({.begin = 0x1000, .bytes = 0x8000});
//   const std::uintptr_t place = free.take(0x2000).value();      // 0x1000
//   free.insert({.begin = place, .bytes = 0x2000});              // one range again
//
// First fit by address keeps memory in use at low addresses and long free ranges at high ones (Wilson et
// al., "Dynamic Storage Allocation: A Survey and Critical Review", 1995).
// Time        logarithmic in the number of ranges. Only take() looks through the ranges that have less than
//             twice the length asked for, until one fits.
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
  // The range that it is part of from now on. `range` overlaps nothing here; an empty one changes nothing.
  AddressRange insert(AddressRange range);
  void erase(AddressRange range);  // a whole one

  // The beginning of the lowest range that is long enough loses `bytes`; where that is. None is long enough:
  // nullopt.
  std::optional<std::uintptr_t> take(std::size_t bytes);

  AddressRange ending_at(std::uintptr_t address) const;  // empty, from there: none does
  AddressRange highest() const;                          // there is one
  std::size_t total_bytes() const { return total_; }

  // address -> bytes
  const std::map<std::uintptr_t, std::size_t>& all() const { return ranges_; }

 private:
  using Addresses = std::set<std::uintptr_t>;
  Addresses& of_length(std::size_t bytes);

  std::map<std::uintptr_t, std::size_t> ranges_;
  std::array<Addresses, 64> by_length_;  // [k]: of at least 2^k bytes, and less than twice that
  std::size_t total_ = 0;
};

}  // namespace lockstep
