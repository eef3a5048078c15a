#include "lockstep/comm/collectives/peer.h"

#include <algorithm>

#include "lockstep/base/number_list.h"
#include "lockstep/comm/collectives/check.h"

namespace lockstep {

int Peer::in(const ProcessGroup& group, std::string_view call, std::string_view role) const {
  using comm::refuse;
  if (kind_ == Kind::ANY) refuse(call, group, role, " -1 is not a rank: only a receive may use ANY_SOURCE");
  const int last = group.size() - 1;
  if (kind_ == Kind::GROUP) {
    if (rank_ < 0 || rank_ > last)
      refuse(call, group, role, " GroupRank{", rank_, "} is not a rank of the group (0 to ", last, ")");
    return rank_;
  }
  const auto& ranks = group.ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found != ranks.end()) return static_cast<int>(found - ranks.begin());
  if (has_global_ranks(group))
    refuse(call, group, role, " ", rank_, " is not a rank of the group (0 to ", last, ")");
  refuse(call, group, role, " ", rank_, " is not a rank of the group, whose global ranks are ",
         number_list(ranks), "; for a rank within the group write GroupRank{", rank_, "}");
}

bool has_global_ranks(const ProcessGroup& group) {
  const auto& ranks = group.ranks();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r] != static_cast<int>(r)) return false;
  }
  return true;
}

std::string ranks_text(const ProcessGroup& group, const std::vector<int>& group_ranks) {
  if (has_global_ranks(group)) return rank_list(group_ranks);
  std::vector<int> global_ranks;
  for (const int rank : group_ranks) global_ranks.push_back(group.ranks().at(static_cast<std::size_t>(rank)));
  return str(rank_list(group_ranks), " (", rank_list(global_ranks), " of the world)");
}

}  // namespace lockstep
