// SplitAgreement: what every backend needs for split(): that all ranks ask for the same groups, words for it
// when they do not, and one number that each rank has to tell the others.
//
//   const SplitAgreement all = agree_on_split(backend, parts, name, my_number);     // collective
//   if (all.disagreement) fail(mismatched(rank, *all.disagreement));
//   use(all.numbers[0]);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"

namespace lockstep {

struct SplitAgreement {
  std::vector<std::uint64_t> numbers;       // by rank
  std::optional<std::string> disagreement;  // the text of the failure, the same on every rank
};
SplitAgreement agree_on_split(Backend& backend, const std::vector<std::vector<int>>& parts,
                              const std::string& name, std::uint64_t number);

// "rows" of the ranks {0, 1}, {2, 3}
std::string describe_split(const std::vector<std::vector<int>>& parts, const std::string& name);
// The part that `rank` is in, or null.
const std::vector<int>* part_of(const std::vector<std::vector<int>>& parts, int rank);

}  // namespace lockstep
