// Which parameters are gathered together, which ones stay, and where all of them lie (ZeRO's stage 3). Pure:
// sizes in, table out.
//
//   const UnitPlan plan = unit_plan(parameters, {.unit_bytes = 4 << 20, .persistence_threshold = 1000},
//                                   /*begin=*/256);
//   plan.units[2].parameters;      // those of the third unit, which lies in bytes [begin, end) of the memory
//   plan.begins[5];                // byte at which parameter 5 begins
//   plan.is_gathered(5);           // otherwise it stays
//
//   begin          resident_end                                    bytes
//   ├──────────────┼───────────────┬───────────────┬───────────────┤
//   │ what stays   │ unit 0        │ unit 1        │ unit 2        │
//   └──────────────┴───────────────┴───────────────┴───────────────┘
//
// Stay    parameters of at most persistence_threshold elements, in their order, until they are together
//         model_persistence_threshold elements; a larger one is then gathered, and smaller ones behind it may
//         still fit. That is DeepSpeed's rule.
// Units   the other parameters in their order, as they are registered, make a unit until it has `unit_bytes`,
//         so a parameter of that size or more ends one. A unit begins with a page of its own, and a parameter
//         at a multiple of 64 bytes.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// Of a memory.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// All but the first are elements of parameters, as DeepSpeed counts.
struct UnitOptions {
  std::size_t unit_bytes = 0;
  std::size_t persistence_threshold = 0;
  std::size_t model_persistence_threshold = std::numeric_limits<std::size_t>::max();
  std::optional<std::size_t> max_live = {};  // gathered at once; default: three of the largest unit
  std::optional<std::size_t> prefetch = {};  // on their way ahead of use; default: one unit
};

struct UnitParameter {
  std::size_t elements = 0;
  std::size_t bytes = 0;
};

struct UnitSpec {
  std::vector<std::size_t> parameters;
  std::size_t elements = 0;
  std::size_t begin = 0;  // byte, of a page
  std::size_t end = 0;    // whole pages
  bool operator==(const UnitSpec&) const = default;
};

// What the two have in common; within the unit, also if it is empty.
ByteRange common_range(const UnitSpec& unit, const ByteRange& range);

struct UnitPlan {
  std::vector<UnitSpec> units;
  std::vector<std::size_t> begins;  // bytes, by parameter
  std::size_t resident_end = 0;     // whole pages
  std::size_t bytes = 0;            // of the memory

  bool is_gathered(std::size_t parameter) const { return begins[parameter] >= resident_end; }
};

// `begin`: bytes at the front that are somebody else's.
UnitPlan unit_plan(std::span<const UnitParameter> parameters, const UnitOptions& options, std::size_t begin);

}  // namespace lockstep
