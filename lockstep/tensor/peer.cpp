#include "lockstep/tensor/peer.h"

#include <algorithm>

#include "lockstep/tensor/tensor_call.h"

namespace lockstep {

int Peer::in(const ProcessGroup& group, const char* verb, const char* role) const {
  if (kind_ == Kind::ANY)
    TensorCall(verb, group).refuse(role, " must be a rank; only a receive may be from any");
  if (kind_ == Kind::GROUP) {
    if (rank_ < 0 || rank_ >= group.size())
      TensorCall(verb, group)
          .refuse(role, " GroupRank{", rank_, "} is not a rank of the group (0 to ", group.size() - 1, ")");
    return rank_;
  }
  const auto& ranks = group.ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) {
    std::string members;
    for (const int rank : ranks) members += str(members.empty() ? "" : ", ", rank);
    TensorCall(verb, group)
        .refuse(role, " ", rank_, " is not a rank of the group, whose global ranks are ", members,
                "; for a rank within the group write GroupRank{", rank_, "}");
  }
  return static_cast<int>(found - ranks.begin());
}

}  // namespace lockstep
