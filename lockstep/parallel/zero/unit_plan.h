// Which parameters are gathered together, and where they lie (ZeRO's stage 3). Pure: sizes in, table out.
//
//   const UnitPlan plan = unit_plan(bytes_by_parameter, /*unit_bytes=*/4 << 20, /*begin=*/4096);
//   plan.units[2];                 // parameters [first, first + count), bytes [begin, end) of the memory
//   plan.begins[5];                // byte at which parameter 5 begins
//
// Parameters in their order, as they are registered, make a unit until it has `unit_bytes`, so a parameter of
// that size or more ends one. A unit begins with a page of its own; a parameter at a multiple of 64 bytes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

struct UnitSpec {
  std::size_t first = 0;  // parameter
  std::size_t count = 0;
  std::size_t begin = 0;  // byte, of a page
  std::size_t end = 0;    // whole pages
  bool operator==(const UnitSpec&) const = default;
};

struct UnitPlan {
  std::vector<UnitSpec> units;
  std::vector<std::size_t> begins;  // bytes, by parameter
  std::size_t bytes = 0;            // of the memory
};

UnitPlan unit_plan(std::span<const std::size_t> parameter_bytes, std::size_t unit_bytes, std::size_t begin);

}  // namespace lockstep
