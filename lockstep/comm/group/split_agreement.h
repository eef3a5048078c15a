// SplitAgreement: the part of making sub-groups that all backends share. All callers check that they ask for
// the same groups, and each caller tells the others one number. The text of a disagreement is made here.
//
//   const SplitAgreement all = agree_on_split(backend, split, my_number);
//   if (all.disagreement) fail(mismatched(rank, *all.disagreement));
//   use(all.numbers[0]);
//   ...                                                // make this rank's group
//   await_callers(backend, split);                     // no rank uses the group before all have made theirs
//
// If every rank calls, the agreement is an all_gather on the group. If the members alone call, each pair of
// them exchanges one message with a tag of its own. Two ranks make the groups that both are in in the same
// order, because each of these groups waits for both. So the messages of a pair are about one group, or the
// two ranks disagree.
//
// Fails       as an all_gather, or a recv, on the group: a dead member is PeerLost, and a member that does
//             not come is a Timeout that names it. The group is closed then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/backend.h"

namespace lockstep {

struct SplitAgreement {
  std::vector<std::uint64_t> numbers;       // by rank; 0 for a rank that does not call
  std::optional<std::string> disagreement;  // the text of the failure
};
// Both functions are collective over the callers.
SplitAgreement agree_on_split(Backend& backend, const SplitRequest& split, std::uint64_t number);
void await_callers(Backend& backend, const SplitRequest& split);

// "split" or "split_over".
std::string_view name_of(SplitRequest::Callers callers);
// split "rows" of the ranks {0, 1}, {2, 3}
std::string describe_split(const SplitRequest& split);
// Returns the part that `rank` is in, or null.
const std::vector<int>* part_of(const std::vector<std::vector<int>>& parts, int rank);

}  // namespace lockstep
