// all_gather and reduce_scatter between nodes whose ranks share memory: what belongs to one rank crosses
// between two nodes once.
//
// Of every other rank of the group one rank of each node is in charge: of rank i of another node rank i,
// modulo its node's ranks.
//
//   all_gather      Each rank sends its part to who is in charge of it in each other node; what has come
//                   there goes to all ranks of the node. Those of one's own node have been gathered
//                   meanwhile.
//   reduce_scatter  In each node who is in charge of a rank combines what the node has for it, and sends it
//                   there. That rank combines what comes from the nodes.
//
// Segments of the parts go through the two halves side by side. Parts may differ in size. All ranks of a node
// have as many things to do together as the node that needs most of it: node by node, a round for as many of
// its ranks as this node has.
#include <algorithm>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

std::size_t segment_count(std::size_t bytes) {
  return std::max<std::size_t>(
      1, (bytes + SEGMENT - 1) / SEGMENT);  // what is empty travels, too, to be compared
}

// Segment k of a part.
Slice segment_of(std::size_t bytes, std::size_t k) {
  const std::size_t begin = std::min(bytes, k * SEGMENT);
  return {begin, std::min(SEGMENT, bytes - begin)};
}

class PartsBetweenNodes {
 public:
  // `sizes` of the parts, by rank.
  PartsBetweenNodes(const Shape& shape, const std::vector<std::size_t>& sizes)
      : shape_(shape),
        sizes_(sizes),
        home_(home_of(shape.nodes, shape.rank)),
        longest_(*std::max_element(sizes.begin(), sizes.end())) {}

  Schedule all_gather() const {
    const std::size_t segments = segment_count(longest_);
    Schedule all{std::vector<Step>(segments + 1), 0};
    all.steps[0].copies.push_back({{Area::INPUT}, {Area::OUTPUTS, 0, shape_.rank}, mine()});
    for (std::size_t k = 0; k < segments; ++k) {
      if (shares()) gather_here(all.steps[k], home_.node, 0, k);
      send_mine(all.steps[k], k);
      for (const auto& round : rounds()) {
        receive_theirs(all.steps[k], round, k);
        if (shares()) gather_here(all.steps[k + 1], round.node, round.first, k);
      }
    }
    return all;
  }

  Schedule reduce_scatter() const {
    const std::size_t segments = segment_count(longest_);
    const std::size_t blocks = shares() ? 2 * rounds().size() : 0;
    Schedule all{std::vector<Step>(segments + 1), (blocks + others()) * block()};
    for (std::size_t k = 0; k < segments; ++k) {
      if (shares())
        combine_here(all.steps[k], {home_.node, 0, 0}, {Area::OUTPUT, segment_of(mine(), k).offset}, k);
      for (const auto& round : rounds()) {
        if (shares()) combine_here(all.steps[k], round, block_of(round, k), k);
        send_theirs(all.steps[k + 1], round, k);
      }
      receive_mine(all.steps[k + 1], k);
    }
    return all;
  }

 private:
  // Ranks `first` and following of another node, one for each rank of this one.
  struct Round {
    std::size_t node = 0;
    std::size_t first = 0;
    std::size_t number = 0;  // of all rounds
  };

  std::size_t mine() const { return shape_.count * shape_.element; }
  const std::vector<int>& here() const { return shape_.nodes[home_.node]; }
  bool shares() const { return here().size() > 1; }
  std::size_t others() const { return shape_.nodes.size() - 1; }  // nodes
  std::size_t node_ahead(std::size_t ahead) const { return (home_.node + ahead) % shape_.nodes.size(); }
  // Who is in charge of this rank there.
  int in_charge(std::size_t node) const {
    const auto& ranks = shape_.nodes[node];
    return ranks[home_.local % ranks.size()];
  }

  std::vector<Round> rounds() const {
    std::vector<Round> all;
    for (std::size_t ahead = 1; ahead <= others(); ++ahead) {
      const std::size_t node = node_ahead(ahead);
      for (std::size_t first = 0; first < shape_.nodes[node].size(); first += here().size())
        all.push_back({node, first, all.size()});
    }
    return all;
  }
  // Of whom this rank is in charge in that round; -1: nobody.
  int charge(const Round& round) const {
    const auto& ranks = shape_.nodes[round.node];
    const std::size_t number = round.first + home_.local;
    return number < ranks.size() ? ranks[number] : -1;
  }

  // Of scratch: first what is to be sent, of even and of odd segments, then what has come from each other
  // node.
  std::size_t block() const { return (std::min(longest_, SEGMENT) + 63) / 64 * 64; }
  Place block_of(const Round& round, std::size_t k) const {
    return {Area::SCRATCH, (k % 2 * rounds().size() + round.number) * block()};
  }
  Place block_from(std::size_t node) const {
    const std::size_t sent = shares() ? 2 * rounds().size() : 0;
    return {Area::SCRATCH, (sent + (node < home_.node ? node : node - 1)) * block()};
  }

  // The parts of a node's ranks from `first` on, one for each rank of this node.
  Local parts_of(Verb verb, std::size_t node, std::size_t first, std::size_t k) const {
    const auto& ranks = shape_.nodes[node];
    const Area area = verb == Verb::ALL_GATHER ? Area::OUTPUTS : Area::INPUTS;
    Local local{verb, {}, {}, 0};
    for (std::size_t i = first; i < first + here().size(); ++i) {
      const int rank = ranks[std::min(i, ranks.size() - 1)];
      const Slice slice = segment_of(sizes_[at(rank)], k);
      local.parts.push_back({{area, slice.offset, rank}, i < ranks.size() ? slice.bytes : 0});
    }
    return local;
  }
  static void post(Step& step, Local local, std::size_t k) {
    const bool is_empty =
        std::all_of(local.parts.begin(), local.parts.end(), [](const auto& part) { return part.bytes == 0; });
    if (k == 0 || !is_empty) step.locals.push_back(std::move(local));
  }

  void gather_here(Step& step, std::size_t node, std::size_t first, std::size_t k) const {
    post(step, parts_of(Verb::ALL_GATHER, node, first, k), k);
  }
  void combine_here(Step& step, const Round& round, const Place& result, std::size_t k) const {
    Local local = parts_of(Verb::REDUCE_SCATTER, round.node, round.first, k);
    local.result = {result, local.parts[home_.local].bytes};
    post(step, std::move(local), k);
  }

  void send_mine(Step& step, std::size_t k) const {
    if (k >= segment_count(mine())) return;
    const Slice slice = segment_of(mine(), k);
    for (std::size_t ahead = 1; ahead <= others(); ++ahead) {
      step.sends.push_back({in_charge(node_ahead(ahead)),
                            static_cast<std::uint32_t>(k),
                            {Area::INPUT, slice.offset},
                            slice.bytes,
                            mine()});
    }
  }
  void receive_theirs(Step& step, const Round& round, std::size_t k) const {
    const int rank = charge(round);
    if (rank < 0 || k >= segment_count(sizes_[at(rank)])) return;
    const Slice slice = segment_of(sizes_[at(rank)], k);
    step.receives.push_back({rank,
                             static_cast<std::uint32_t>(k),
                             {Area::OUTPUTS, slice.offset, rank},
                             slice.bytes,
                             sizes_[at(rank)]});
  }

  void send_theirs(Step& step, const Round& round, std::size_t k) const {
    const int rank = charge(round);
    if (rank < 0 || k >= segment_count(sizes_[at(rank)])) return;
    const Slice slice = segment_of(sizes_[at(rank)], k);
    const Place from = shares() ? block_of(round, k) : Place{Area::INPUTS, slice.offset, rank};
    step.sends.push_back({rank, static_cast<std::uint32_t>(k), from, slice.bytes, sizes_[at(rank)]});
  }
  void receive_mine(Step& step, std::size_t k) const {
    if (k >= segment_count(mine())) return;
    const Slice slice = segment_of(mine(), k);
    const Place output{Area::OUTPUT, slice.offset};
    Combine all{{}, output, slice.bytes, /*of_nodes=*/true};
    for (std::size_t node = 0; node <= others(); ++node) {
      if (node == home_.node) {
        all.inputs.push_back(shares() ? output : Place{Area::INPUTS, slice.offset, shape_.rank});
        continue;
      }
      all.inputs.push_back(block_from(node));
      step.receives.push_back(
          {in_charge(node), static_cast<std::uint32_t>(k), block_from(node), slice.bytes, mine()});
    }
    step.combines.push_back(std::move(all));
  }

  const Shape& shape_;
  const std::vector<std::size_t>& sizes_;
  const Home home_;
  const std::size_t longest_;  // of all parts
};

}  // namespace

Schedule all_gather_between_nodes(const Shape& shape) {
  return PartsBetweenNodes(shape, shape.outputs).all_gather();
}

Schedule reduce_scatter_between_nodes(const Shape& shape) {
  return PartsBetweenNodes(shape, shape.inputs).reduce_scatter();
}

}  // namespace lockstep::algorithms
