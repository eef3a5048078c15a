// all_reduce between nodes whose ranks share memory. Rank i of each node is in lane i. There are as many
// lanes as the smallest node has ranks. Each segment passes through four steps. Four segments are under way
// at once, each in another step:
//
//   reduce    in each node: the rank of lane i combines slice i of its node's contributions
//   scatter   in each lane: the rank of node n combines part n of all nodes' sums of its slice
//   gather    in each lane: each rank gets all parts of the slice
//   spread    in each node: each rank gets all slices
//
// So each of M nodes sends 2 (M - 1) / M of the bytes, through all of its ranks at once. Small data use one
// lane, and each node sends its sum to all other nodes in one step, "exchange", instead of scatter and
// gather. So do two nodes, because both ways send the same number of bytes there.
//
// The scheme: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, section 4 (SMP clusters).
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

class BetweenNodes {
 public:
  explicit BetweenNodes(const Shape& shape)
      : shape_(shape),
        bytes_(shape.count * shape.element),
        is_small_(bytes_ <= SMALL),
        exchanges_(is_small_ || (shape.nodes.size() == 2 && bytes_ <= SEGMENT)) {
    const Home home = home_of(shape.nodes, shape.rank);
    node_ = home.node;
    local_ = home.local;
    lanes_ = is_small_ ? 1 : smallest_node(shape.nodes);
    segment_ = is_small_ ? std::max<std::size_t>(1, bytes_) : SEGMENT;
    const std::size_t longest = slice(0, 0).bytes;
    block_ = exchanges_ ? longest : slice_of(longest, to_int(nodes()), 0).bytes;
    block_ = (block_ + 63) / 64 * 64;
  }

  Schedule schedule() const {
    const std::size_t segments = std::max<std::size_t>(1, (bytes_ + segment_ - 1) / segment_);
    const std::size_t phases = exchanges_ ? 3 : 4;
    Schedule all{std::vector<Step>(segments + phases - 1), 0};
    if (local_ < lanes_) all.scratch_bytes = block_ * (nodes() - 1);
    for (std::size_t k = 0; k < segments; ++k) {
      add_local(all.steps[k], Verb::REDUCE_SCATTER, k);
      if (local_ < lanes_) {
        exchanges_ ? exchange(all.steps[k + 1]) : scatter(all.steps[k + 1], k);
        if (!exchanges_) gather(all.steps[k + 2], k);
      }
      add_local(all.steps[k + phases - 1], Verb::ALL_GATHER, k);
    }
    return all;
  }

 private:
  static int to_int(std::size_t value) { return static_cast<int>(value); }
  std::size_t nodes() const { return shape_.nodes.size(); }

  // The slice of lane `lane` in segment k.
  Slice slice(std::size_t k, std::size_t lane) const {
    if (lane >= lanes_) return {};
    const std::size_t begin = k * segment_;
    const Slice inside = slice_of(std::min(segment_, bytes_ - begin), to_int(lanes_), to_int(lane));
    return {begin + inside.offset, inside.bytes};
  }
  // Of this rank's slice of segment k, the part that node `node` combines.
  Slice part(std::size_t k, std::size_t node) const {
    const Slice whole = slice(k, local_);
    const Slice inside = slice_of(whole.bytes, to_int(nodes()), to_int(node));
    return {whole.offset + inside.offset, inside.bytes};
  }
  int in_lane(std::size_t node) const { return shape_.nodes[node][local_]; }
  Place block_of(std::size_t node) const {
    return {Area::SCRATCH, block_ * (node < node_ ? node : node - 1)};
  }

  void add_local(Step& step, Verb verb, std::size_t k) const {
    const auto& ranks = shape_.nodes[node_];
    if (ranks.size() == 1) return;
    Local local{verb, {}, {}, 0};
    for (std::size_t lane = 0; lane < ranks.size(); ++lane) {
      const Slice part = slice(k, lane);
      local.parts.push_back({{Area::OUTPUT, part.offset}, part.bytes});
    }
    local.result = local.parts[local_];
    step.locals.push_back(std::move(local));
  }

  Combine combine(const Slice& mine) const {
    Combine all{{}, {Area::OUTPUT, mine.offset}, mine.bytes, /*of_nodes=*/true};
    for (std::size_t n = 0; n < nodes(); ++n)
      all.inputs.push_back(n == node_ ? Place{Area::OUTPUT, mine.offset} : block_of(n));
    return all;
  }

  // All data are one segment.
  void exchange(Step& step) const {
    const Slice mine = slice(0, local_);
    if (mine.bytes == 0 && bytes_ > 0) return;
    for (std::size_t ahead = 1; ahead < nodes(); ++ahead) {
      const std::size_t node = (node_ + ahead) % nodes();
      step.sends.push_back({in_lane(node), 0, {Area::OUTPUT, mine.offset}, mine.bytes, bytes_});
      step.receives.push_back({in_lane(node), 0, block_of(node), mine.bytes, bytes_});
    }
    step.combines.push_back(combine(mine));
  }

  void scatter(Step& step, std::size_t k) const {
    const auto label = static_cast<std::uint32_t>(2 * k);
    const Slice mine = part(k, node_);
    for (std::size_t ahead = 1; ahead < nodes(); ++ahead) {
      const std::size_t node = (node_ + ahead) % nodes();
      const Slice theirs = part(k, node);
      if (theirs.bytes > 0)
        step.sends.push_back({in_lane(node), label, {Area::OUTPUT, theirs.offset}, theirs.bytes, bytes_});
      if (mine.bytes > 0) step.receives.push_back({in_lane(node), label, block_of(node), mine.bytes, bytes_});
    }
    if (mine.bytes > 0) step.combines.push_back(combine(mine));
  }

  void gather(Step& step, std::size_t k) const {
    const auto label = static_cast<std::uint32_t>(2 * k + 1);
    const Slice mine = part(k, node_);
    for (std::size_t ahead = 1; ahead < nodes(); ++ahead) {
      const std::size_t node = (node_ + ahead) % nodes();
      const Slice theirs = part(k, node);
      if (mine.bytes > 0)
        step.sends.push_back({in_lane(node), label, {Area::OUTPUT, mine.offset}, mine.bytes, bytes_});
      if (theirs.bytes > 0)
        step.receives.push_back({in_lane(node), label, {Area::OUTPUT, theirs.offset}, theirs.bytes, bytes_});
    }
  }

  const Shape& shape_;
  const std::size_t bytes_;
  const bool is_small_;
  const bool exchanges_;   // uses exchange() instead of scatter and gather
  std::size_t node_ = 0;   // this rank's node
  std::size_t local_ = 0;  // index of this rank in its node, and its lane
  std::size_t lanes_ = 1;
  std::size_t segment_ = 1;  // in bytes
  std::size_t block_ = 0;    // bytes of scratch for another node's data in one combine
};

}  // namespace

Home home_of(const Nodes& nodes, int rank) {
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const auto found = std::find(nodes[n].begin(), nodes[n].end(), rank);
    if (found != nodes[n].end()) return {n, static_cast<std::size_t>(found - nodes[n].begin())};
  }
  throw InternalError("a rank is on no node");
}

std::size_t smallest_node(const Nodes& nodes) {
  const auto smallest = std::min_element(nodes.begin(), nodes.end(),
                                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return smallest->size();
}

bool keeps_order(const Nodes& nodes) {
  const std::size_t ranks = nodes.front().size();
  int next = 0;
  for (const auto& node : nodes) {
    const bool fits = node.size() == ranks || (node.size() < ranks && &node == &nodes.back());
    if (!fits || !std::all_of(node.begin(), node.end(), [&](int rank) { return rank == next++; }))
      return false;
  }
  return (ranks & (ranks - 1)) == 0;
}

Schedule all_reduce_between_nodes(const Shape& shape) { return BetweenNodes(shape).schedule(); }

}  // namespace lockstep::algorithms
