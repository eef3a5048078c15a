// Decides how large the data segment of each rank is. Every rank maps the segments of all ranks, so together
// they must fit into the address space of each process. Pure; ranks exchange the plan as text.
//
//   const SegmentPlan mine = segment_plan(ranks, memory_facts());     // what this process could map
//   const SegmentPlan plan = smallest(all);                           // what every rank can
//
//
// A segment takes memory only as far as it is used. It is as large as the machine's memory where addresses
// allow, because one rank may need most of that memory. Half of the addresses are left to the program.
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
  bool is_limited = false;        // `ulimit -v` limits `address_space`, not the processor
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

// Returns the plan of the rank that can map least, and the first of several such plans.
std::size_t smallest(const std::vector<SegmentPlan>& plans);

// Returns what limited the segment of `rank`, and what to do: " (the limit `ulimit -v` ...)". Empty for
// MEMORY.
std::string explain(const SegmentPlan& plan, int rank);

}  // namespace lockstep::shared
