// NormReducer: whose elements a norm is of. By default those of this rank; with a group those of all its ranks.
//
//   const dist::NormReducer over_ranks(group);              // each element of a parameter lies on one rank of the group
//   optimizer.reduce_norms(over_ranks);
//   dist::clip_grad_norm_(shards, 1.0, 2.0, false, over_ranks);
//
// Collective  with a group: each call that takes a norm, on every rank, with as many norms.
// The bits    sums are float64 and add in the tree of all_reduce: equal on every rank. They depend on where the ranks'
//             shards begin, as those of one process depend on where its chunks do.
// A tensor that every rank holds would count once per rank: take its norm without a group.
#pragma once

#include <optional>
#include <span>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class NormReducer {
 public:
  NormReducer() = default;
  explicit NormReducer(ProcessGroup group);

  bool is_local() const { return !group_; }
  // Each value becomes the sum over the ranks, or the largest of them; NaN where a rank has NaN.
  void sum(std::span<double> values) const;
  void largest(std::span<double> values) const;

 private:
  std::optional<ProcessGroup> group_;
};

}  // namespace lockstep
