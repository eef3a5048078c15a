// Part tables. In scatter, reduce_scatter and all_to_all a rank has a different part for every other rank. It
// writes a table of these parts at the head of its block or window.
//
//   const PartPlan plan = part_plan(parts, rank);     // block: table, then the parts of the others
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/round_up.h"
#include "lockstep/comm/backends/segment/layout.h"

namespace lockstep::shared {

using Parts = std::vector<std::span<const std::byte>>;  // by destination rank

// One entry of the table.
struct Part {
  std::uint64_t offset = 0;  // in the segment of the contributor
  std::uint64_t bytes = 0;
  std::uint64_t behind = 0;  // the part is complete when this many bytes of the block are filled
};

constexpr std::size_t table_bytes(std::size_t parts) { return round_up(parts * sizeof(Part), LINE); }

// Offsets count from the start of the block. The part for the next higher rank comes first, so that not all
// ranks read from the same block first.
struct PartPlan {
  std::vector<Part> entries;  // by destination rank
  std::size_t bytes = 0;      // size of the block
};
PartPlan part_plan(const Parts& parts, int rank);

// Data that must be copied into a block, and its place there.
struct Piece {
  std::span<const std::byte> data;
  std::size_t at;  // offset in the block
};
void copy_pieces(const std::vector<Piece>& pieces, std::byte* block);

}  // namespace lockstep::shared
