#include "lockstep/comm/backends/shared/part_table.h"

#include <cstring>

namespace lockstep::shared {

PartPlan part_plan(const Parts& parts, int rank) {
  PartPlan plan{std::vector<Part>(parts.size()), table_bytes(parts.size())};
  for (std::size_t step = 1; step < parts.size(); ++step) {
    const std::size_t r = (static_cast<std::size_t>(rank) + step) % parts.size();
    plan.entries[r] = {plan.bytes, parts[r].size(), plan.bytes + parts[r].size()};
    plan.bytes += round_up(parts[r].size(), LINE);
  }
  return plan;
}

void copy_pieces(const std::vector<Piece>& pieces, std::byte* block) {
  for (const Piece& piece : pieces) {
    if (!piece.data.empty()) std::memcpy(block + piece.at, piece.data.data(), piece.data.size());
  }
}

}  // namespace lockstep::shared
