// Peer: the other rank of a verb, or its root, written like in torch.distributed. Every function that takes a
// rank takes a Peer: on tensors, spans and objects.
//
//   dist::broadcast(x, 3, group);                       // src=3: a rank of the job (a "global rank")
//   dist::broadcast(x, dist::GroupRank{1}, group);      // group_src=1: a rank of the group
//   dist::recv(x, std::nullopt);  // src=None: any source; the same as dist::ANY_SOURCE
//
// A function that returns a rank, such as the source of a message, returns a rank of the job. A list with one
// entry per rank is in the order of the group; the group's ranks() has their numbers in the job.
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

  // Returns the rank within `group`. Throws InvalidArgument that names `call` and `role` ("src") if it is not
  // a rank of the group, or is_any().
  int in(const ProcessGroup& group, std::string_view call, std::string_view role) const;

 private:
  enum class Kind { GLOBAL, GROUP, ANY };
  Kind kind_;
  int rank_ = ANY_SOURCE;
};

// Returns whether the group's ranks have the same numbers in the job.
bool has_global_ranks(const ProcessGroup& group);

// For messages: "ranks 1, 3" or, in a group whose ranks have other numbers in the job, "rank 1 (rank 3 of the
// world)". Of many ranks only the first are named (number_list.h).
std::string ranks_text(const ProcessGroup& group, const std::vector<int>& group_ranks);

}  // namespace lockstep
