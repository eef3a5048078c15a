#include "lockstep/job/virtual_rank_plan.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// The text "((0+1)+(2+3))" for the node that covers virtual ranks from `first` to before `end`.
std::string picture(int first, int end) {
  if (end - first == 1) return std::to_string(first);
  int half = 1;
  while (2 * half < end - first) half *= 2;
  return str('(', picture(first, first + half), '+', picture(first + half, end), ')');
}

VirtualShare share_of(int virtual_ranks, int processes, int process) {
  const int each = virtual_ranks / processes;
  const int more = virtual_ranks % processes;
  VirtualShare share;
  share.first = process * each + std::min(process, more);
  share.count = each + (process < more ? 1 : 0);
  VirtualTree tree(virtual_ranks);
  for (int v = share.first; v <= share.last(); ++v) tree.push({.first = v});
  share.roots = tree.sums();
  return share;
}

// Returns whether the tree over the processes is the rest of the tree: the nodes are equal, and only the last
// may be incomplete.
bool has_one_root_each(const std::vector<VirtualShare>& shares) {
  const int count = shares.front().count;
  return std::all_of(shares.begin(), shares.end(), [&](const VirtualShare& share) {
    const bool is_last = &share == &shares.back();
    return share.roots.size() == 1 && (share.count == count || (is_last && share.count < count)) &&
           (is_last || share.count == 1 << share.roots[0].level);
  });
}

}  // namespace

// Neighbours are a left child and its sibling, which is complete except at the right edge of the tree.
bool VirtualTree::are_neighbours() const {
  if (sums_.size() < 2) return false;
  const VirtualSubtree& left = sums_[sums_.size() - 2];
  const VirtualSubtree& right = sums_.back();
  const int width = 1 << left.level;
  return left.first % (2 * width) == 0 && left.count == width && right.first == left.first + width &&
         right.first + right.count == std::min(right.first + width, virtual_ranks_);
}

int VirtualTree::push(VirtualSubtree node) {
  sums_.push_back(node);
  int additions = 0;
  for (; are_neighbours(); ++additions) {
    const int right = sums_.back().count;
    sums_.pop_back();
    sums_.back().count += right;
    ++sums_.back().level;
  }
  return additions;
}

int VirtualRankPlan::roots() const {
  int count = 0;
  for (const VirtualShare& share : shares) count += static_cast<int>(share.roots.size());
  return count;
}

VirtualRankPlan virtual_rank_plan(int virtual_ranks, int processes) {
  if (processes < 1 || virtual_ranks < processes) {
    throw InvalidArgument(str(virtual_ranks, " virtual ranks for ", processes,
                              " processes: every process needs at least one; start at most ", virtual_ranks,
                              " processes, or ask for more virtual ranks"));
  }
  VirtualRankPlan plan;
  plan.virtual_ranks = virtual_ranks;
  for (int process = 0; process < processes; ++process)
    plan.shares.push_back(share_of(virtual_ranks, processes, process));
  plan.one_root_each = has_one_root_each(plan.shares);
  return plan;
}

std::string to_string(const VirtualRankPlan& plan) {
  std::string text = str(plan.virtual_ranks, " virtual ranks on ", plan.shares.size(), " processes: ",
                         plan.one_root_each ? std::string("all_reduce of one subtree each")
                                            : str("exchange of ", plan.roots(), " subtrees"),
                         '\n');
  for (std::size_t process = 0; process < plan.shares.size(); ++process) {
    const VirtualShare& share = plan.shares[process];
    text += str("process ", process, ":");
    for (int v = share.first; v <= share.last(); ++v) text += str(' ', v);
    text += ", sums";
    for (const VirtualSubtree& root : share.roots)
      text += str(' ', picture(root.first, root.first + root.count));
    text += '\n';
  }
  return text;
}

}  // namespace lockstep
