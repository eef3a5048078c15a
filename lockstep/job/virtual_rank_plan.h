// virtual_rank_plan: which virtual ranks each process runs, and how their gradients become one sum whose bits
// do not depend on the number of processes. Pure.
//
//   const VirtualRankPlan plan = virtual_rank_plan(/*virtual_ranks=*/4, /*processes=*/3);
//   to_string(plan);
//       // 4 virtual ranks on 3 processes: exchange of 3 subtrees
//       // process 0: 0 1, sums (0+1)
//       // process 1: 2, sums 2
//       // process 2: 3, sums 3
//
// Shares   consecutive virtual ranks; the first V % N processes have one more than the rest.
// Tree     the summation tree of comm/kernels: neighbours first, ((0+1)+(2+3)); a node without a neighbour
//          moves up. A process adds the largest subtrees that lie in its share. It cannot add more: the 2 in
//          0+1+2 must first be added to the 3 of the next process.
// Between  one_root_each: every process has one subtree, all on one level of the tree. The tree over the
//          processes is then the rest of the tree, so an all_reduce completes it. Otherwise the processes
//          exchange their subtrees and add the rest of the tree from these.
// Fails    InvalidArgument: fewer virtual ranks than processes, or none.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// The sum of `count` virtual ranks from `first` on. A node of level L has 2^L of them, fewer at the right
// edge of the tree.
struct VirtualSubtree {
  int first = 0;
  int count = 1;
  int level = 0;
  bool operator==(const VirtualSubtree&) const = default;
};

// Adds nodes of the tree from left to right, like a binary counter: sums are added as soon as possible, so at
// most one sum is kept for each level.
//
//   VirtualTree tree(4);
//   tree.push({.first = 0});   // 0 additions: 0
//   tree.push({.first = 1});   // 1: the sum of 0 and 1 replaces them
//   tree.push({.first = 2});   // 0: (0+1), 2
//   tree.push({.first = 3});   // 2: ((0+1)+(2+3))
class VirtualTree {
 public:
  explicit VirtualTree(int virtual_ranks) : virtual_ranks_(virtual_ranks) {}
  // Returns how many times the last two sums become one.
  int push(VirtualSubtree node);
  const std::vector<VirtualSubtree>& sums() const { return sums_; }
  void clear() { sums_.clear(); }

 private:
  bool are_neighbours() const;

  int virtual_ranks_;
  std::vector<VirtualSubtree> sums_;
};

struct VirtualShare {
  int first = 0;
  int count = 0;
  std::vector<VirtualSubtree> roots;
  int last() const { return first + count - 1; }
};

struct VirtualRankPlan {
  int virtual_ranks = 0;
  std::vector<VirtualShare> shares;  // by process
  bool one_root_each = false;
  int roots() const;  // of all processes
};

VirtualRankPlan virtual_rank_plan(int virtual_ranks, int processes);

std::string to_string(const VirtualRankPlan& plan);

}  // namespace lockstep
