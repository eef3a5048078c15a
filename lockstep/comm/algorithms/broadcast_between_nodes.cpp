// broadcast to nodes whose ranks share memory: the bytes reach each node once.
//
// Small data go to one rank of each node, along a binomial tree of the nodes, and from there to the other
// ranks of the node. Large data are cut into segments, which pass through up to four steps. Several segments
// are under way at once, each in another step. Lane i is rank i of each node. There are as many lanes as the
// smallest node has ranks:
//
//   share     in the root's node: each rank gets the segment
//   scatter   in each lane: the rank of the root's node sends slice i of the segment. If there are more than
//             two nodes, it sends each other node a part of the slice
//   gather    in each lane, if there are more than two nodes: the other nodes exchange their parts
//   spread    in each other node: each rank gets all slices
//
// So no node sends more than all bytes once, through all of its ranks at the same time.
#include <algorithm>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

class BroadcastBetweenNodes {
 public:
  explicit BroadcastBetweenNodes(const Shape& shape)
      : shape_(shape),
        bytes_(shape.count * shape.element),
        root_(home_of(shape.nodes, shape.root)),
        here_(home_of(shape.nodes, shape.rank)),
        lanes_(smallest_node(shape.nodes)) {}

  Schedule schedule() const { return bytes_ <= SMALL ? small() : large(); }

 private:
  const std::vector<int>& ranks() const { return shape_.nodes[here_.node]; }
  bool is_roots_node() const { return here_.node == root_.node; }
  std::size_t nodes() const { return shape_.nodes.size(); }
  // Place of this rank's node, counted from the root's node.
  std::size_t place() const { return (here_.node + nodes() - root_.node) % nodes(); }
  const std::vector<int>& node_at(std::size_t place) const {
    return shape_.nodes[(root_.node + place) % nodes()];
  }
  // The rank that receives for its node, and sends on. It depends on the root, so that different roots use
  // different ranks.
  int leader(std::size_t place) const {
    return place == 0 ? shape_.root : node_at(place)[root_.local % node_at(place).size()];
  }

  void share(Step& step, Slice slice, int leader) const {
    if (ranks().size() == 1) return;
    const auto number = static_cast<int>(home_of(shape_.nodes, leader).local);
    step.locals.push_back({Verb::BROADCAST, {{{Area::OUTPUT, slice.offset}, slice.bytes}}, {}, number});
  }

  Schedule small() const {
    Schedule schedule;
    const int own_leader = leader(place());
    Step onward;
    share(onward, {0, bytes_}, own_leader);
    if (shape_.rank == own_leader) {
      std::size_t distance = 1;
      while (distance < nodes() && (place() & distance) == 0) distance *= 2;
      if (place() != 0) {
        schedule.steps.emplace_back();
        schedule.steps.back().receives.push_back(
            {leader(place() - distance), 0, {Area::OUTPUT}, bytes_, bytes_});
      }
      for (std::size_t child = distance / 2; child > 0; child /= 2) {
        if (place() + child < nodes())
          onward.sends.push_back({leader(place() + child), 0, {Area::OUTPUT}, bytes_, bytes_});
      }
    }
    schedule.steps.push_back(std::move(onward));
    return schedule;
  }

  Schedule large() const {
    const std::size_t segments = (bytes_ + SEGMENT - 1) / SEGMENT;
    const std::size_t phases = nodes() > 2 ? 4 : 3;
    Schedule all{std::vector<Step>(segments + phases - 1), 0};
    for (std::size_t k = 0; k < segments; ++k) {
      if (is_roots_node()) share(all.steps[k], segment(k), shape_.root);
      if (here_.local < lanes_) {
        scatter(all.steps[k + 1], k);
        if (nodes() > 2 && !is_roots_node()) gather(all.steps[k + 2], k);
      }
      if (!is_roots_node()) spread(all.steps[k + phases - 1], k);
    }
    return all;
  }

  Slice segment(std::size_t k) const {
    const std::size_t begin = k * SEGMENT;
    return {begin, std::min(SEGMENT, bytes_ - begin)};
  }
  Slice slice(std::size_t k, std::size_t lane) const {
    if (lane >= lanes_) return {};
    const Slice whole = segment(k);
    const Slice inside = slice_of(whole.bytes, static_cast<int>(lanes_), static_cast<int>(lane));
    return {whole.offset + inside.offset, inside.bytes};
  }
  // Of this lane's slice, the part that the node at `place` (1, 2, ...) receives from the root's node.
  Slice part(std::size_t k, std::size_t place) const {
    const Slice whole = slice(k, here_.local);
    const Slice inside = slice_of(whole.bytes, static_cast<int>(nodes() - 1), static_cast<int>(place) - 1);
    return {whole.offset + inside.offset, inside.bytes};
  }
  Transfer transfer(std::size_t place, std::uint32_t label, const Slice& part) const {
    return {node_at(place)[here_.local], label, {Area::OUTPUT, part.offset}, part.bytes, bytes_};
  }

  void scatter(Step& step, std::size_t k) const {
    const auto label = static_cast<std::uint32_t>(2 * k);
    for (std::size_t other = 1; other < nodes(); ++other) {
      const Slice theirs = part(k, other);
      if (theirs.bytes == 0) continue;
      if (is_roots_node()) step.sends.push_back(transfer(other, label, theirs));
      if (other == place()) step.receives.push_back(transfer(0, label, theirs));
    }
  }

  void gather(Step& step, std::size_t k) const {
    const auto label = static_cast<std::uint32_t>(2 * k + 1);
    const Slice mine = part(k, place());
    for (std::size_t other = 1; other < nodes(); ++other) {
      if (other == place()) continue;
      const Slice theirs = part(k, other);
      if (mine.bytes > 0) step.sends.push_back(transfer(other, label, mine));
      if (theirs.bytes > 0) step.receives.push_back(transfer(other, label, theirs));
    }
  }

  void spread(Step& step, std::size_t k) const {
    if (ranks().size() == 1) return;
    Local local{Verb::ALL_GATHER, {}, {}, 0};
    for (std::size_t lane = 0; lane < ranks().size(); ++lane) {
      const Slice part = slice(k, lane);
      local.parts.push_back({{Area::OUTPUT, part.offset}, part.bytes});
    }
    step.locals.push_back(std::move(local));
  }

  const Shape& shape_;
  const std::size_t bytes_;
  const Home root_;
  const Home here_;
  const std::size_t lanes_;
};

}  // namespace

Schedule broadcast_between_nodes(const Shape& shape) { return BroadcastBetweenNodes(shape).schedule(); }

}  // namespace lockstep::algorithms
