// NormReducer: the ranks over which a norm is taken. By default it is this rank alone; with a group, all its
// ranks.
//
//   const dist::NormReducer over_ranks(group);        // each element of a parameter lies on one of its ranks
//   optimizer.reduce_norms(over_ranks);
//   dist::clip_grad_norm_(shards, 1.0, 2.0, false, over_ranks);
//
// Collective  with a group: each call that takes a norm, on every rank, with the same number of norms.
// The bits    Sums are float64 and equal on every rank. If a parameter's shards begin at multiples of 65,536
//             elements, LARS and LAMB compute the sum that one rank would. clip_grad_norm_ adds in the tree
//             of all_reduce.
// Replicas    A tensor that every rank holds would count once per rank, so take its norm without a group.
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
  // Each value becomes the sum over the ranks, or the largest of them; NaN if a rank has NaN.
  void sum(std::span<double> values) const;
  void largest(std::span<double> values) const;

 private:
  std::optional<ProcessGroup> group_;
};

}  // namespace lockstep
