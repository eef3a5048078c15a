// Part tables: a rank that has a part of its own for every other (scatter, reduce_scatter, all_to_all) writes
// a table of the parts at the head of its block or window.
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

using Parts = std::vector<std::span<const std::byte>>;  // by the rank that each is for

// One entry of the table.
struct Part {
  std::uint64_t offset = 0;  // in the owner's segment
  std::uint64_t bytes = 0;
  std::uint64_t behind = 0;  // bytes of the block that must be there before all of the part is
};

constexpr std::size_t table_bytes(std::size_t parts) { return round_up(parts * sizeof(Part), LINE); }

// Offsets are those in the block. The parts of the other ranks begin with that for the rank behind `rank`, so
// that not all ranks read from the same block first.
struct PartPlan {
  std::vector<Part> entries;  // by the rank that each is for
  std::size_t bytes = 0;      // of the block
};
PartPlan part_plan(const Parts& parts, int rank);

// Data that are to be copied into a block, and where.
struct Piece {
  std::span<const std::byte> data;
  std::size_t at;  // in the block
};
void copy_pieces(const std::vector<Piece>& pieces, std::byte* block);

}  // namespace lockstep::shared
