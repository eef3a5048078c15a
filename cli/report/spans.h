// Spans of time, and sets of them, to find how a step's time was spent. Pure.
//
//   const Spans busy = merged({{0, 4}, {2, 6}});         // {{0, 6}}
//   without(busy, merged({{1, 2}}));                     // {{0, 1}, {2, 6}}
//   length_within(busy, {5, 9});                         // 1
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::cli {

struct Span {
  std::int64_t start = 0;  // nanoseconds; of the Unix clock, or of a machine's steady_clock
  std::int64_t end = 0;    // not before start
  friend bool operator==(const Span&, const Span&) = default;
};

// Merged: in order, none touches the next, none is empty.
using Spans = std::vector<Span>;

Spans merged(Spans spans);
// Both are merged. Returns the parts of `spans` that are in none of `others`.
Spans without(const Spans& spans, const Spans& others);
// Returns the parts of the merged `spans` that are in the window.
Spans within(const Spans& spans, const Span& window);
std::int64_t length_within(const Spans& spans, const Span& window);

}  // namespace lockstep::cli
