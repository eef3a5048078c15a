// Peer: the other rank of a verb, or its root, said as in torch.distributed. Every function that takes a
// rank takes a Peer, on tensors, on spans and on objects.
//
//   dist::broadcast(x, 3, group);                       // src=3: a rank of the whole job (a "global rank")
//   dist::broadcast(x, dist::GroupRank{1}, group);      // group_src=1: a rank of the group
//   dist::recv(x, std::nullopt);  // src=None: from whoever sends first; dist::ANY_SOURCE is the same
//
// A function that returns a rank, such as the source of a message, returns a rank of the whole job. A list
// with one entry per rank is in the order of the group, and ranks() of the group has their numbers in the
// job.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace LOCKSTEP_PUBLIC lockstep {

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

  // The rank within `group`. Throws InvalidArgument, naming `call` and `role` ("src"), when it is not one or
  // is_any().
  int in(const ProcessGroup& group, std::string_view call, std::string_view role) const;

 private:
  enum class Kind { GLOBAL, GROUP, ANY };
  Kind kind_;
  int rank_ = ANY_SOURCE;
};

// Whether its ranks have the same numbers in the whole job.
bool has_global_ranks(const ProcessGroup& group);

// For messages: "ranks 1, 3", and in a group whose ranks have other numbers "rank 1 (rank 3 of the world)".
// Of many ranks the first are named (number_list.h).
std::string ranks_text(const ProcessGroup& group, const std::vector<int>& group_ranks);

}  // namespace lockstep
