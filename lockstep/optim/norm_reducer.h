// NormReducer: over which ranks a norm is taken. By default over this rank alone, with a group over all its
// ranks.
//
//   const dist::NormReducer over_ranks(group);        // each element of a parameter lies on one of its ranks
//   optimizer.reduce_norms(over_ranks);
//   dist::clip_grad_norm_(shards, 1.0, 2.0, false, over_ranks);
//
// Collective  with a group: each call that takes a norm, on every rank, with as many norms.
// The bits    sums are float64 and equal on every rank. Of a parameter whose shards begin at multiples of
// 65,536
//             elements LARS and LAMB find the sum that one rank finds; clip_grad_norm_ adds in the tree of
//             all_reduce.
// Replicas    a tensor that every rank holds would count once per rank: take its norm without a group.
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
