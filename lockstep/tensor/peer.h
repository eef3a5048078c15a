// Peer: the other rank of a verb, said as in torch.distributed.
//
//   dist::broadcast(x, 3, group);                       // src=3: a rank of the whole job (a "global rank")
//   dist::broadcast(x, dist::GroupRank{1}, group);      // group_src=1: a rank of the group
//   dist::recv(x, std::nullopt);                        // src=None: from whoever sends first; dist::ANY_SOURCE is the same
#pragma once

#include <optional>

#include "lockstep/comm/process_group.h"

namespace lockstep {

struct GroupRank {
  int rank = 0;
};

class Peer {
 public:
  // NOLINTBEGIN(google-explicit-constructor): an argument, written as a number
  Peer(int global_rank) : kind_(global_rank == ANY_SOURCE ? Kind::ANY : Kind::GLOBAL), rank_(global_rank) {}
  Peer(GroupRank group_rank) : kind_(Kind::GROUP), rank_(group_rank.rank) {}
  Peer(std::nullopt_t /*any*/) : kind_(Kind::ANY) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_any() const { return kind_ == Kind::ANY; }

  // The rank within `group`. Throws InvalidArgument, naming `verb` and `role` ("src"), when it is not one or is_any().
  int in(const ProcessGroup& group, const char* verb, const char* role) const;

 private:
  enum class Kind { GLOBAL, GROUP, ANY };
  Kind kind_;
  int rank_ = ANY_SOURCE;
};

}  // namespace lockstep
