// How large the data segment of each rank is: every rank maps those of all, so that they must fit into the
// address space of each. Pure, and printable in one text that ranks exchange.
//
//   const SegmentPlan mine = segment_plan(ranks, memory_facts());     // what this process could map
//   const SegmentPlan plan = smallest(all);                           // what every rank can
//
// A segment takes memory only as far as it is used. It is as large as the machine's memory where addresses
// allow: one rank may need most of it. Half of the addresses are left to the program.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::shared {

struct MemoryFacts {
  std::size_t physical = 0;       // bytes of memory of the machine
  std::size_t address_space = 0;  // that this process may still map
  std::size_t largest_file = 0;   // a segment is a file without a name
  bool is_limited = false;        // `address_space` by `ulimit -v`, not by the processor
};
MemoryFacts memory_facts();

enum class SegmentBound { MEMORY, ADDRESSES, ADDRESS_LIMIT, FILE_LIMIT };

struct SegmentPlan {
  std::size_t bytes = 0;
  SegmentBound bound = SegmentBound::MEMORY;

  std::string text() const;
  static std::optional<SegmentPlan> parse(const std::string& text);
};

SegmentPlan segment_plan(int ranks, const MemoryFacts& facts);

// The plan of the rank that can map least; the first of them.
std::size_t smallest(const std::vector<SegmentPlan>& plans);

// What made the segment of `rank` as small as it is, and what to do: " (the limit `ulimit -v` ...)"; empty
// for MEMORY.
std::string explain(const SegmentPlan& plan, int rank);

}  // namespace lockstep::shared
