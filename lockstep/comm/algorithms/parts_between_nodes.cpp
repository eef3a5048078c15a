// all_gather and reduce_scatter between nodes whose ranks share memory: the data of one rank cross between
// two nodes once.
//
// For every rank of another node, one rank of this node is in charge. For rank i of that node, it is rank i
// modulo the number of ranks here.
//
//   all_gather      Each rank sends its part to the rank in charge of it in each other node. Those ranks pass
//                   it on to all ranks of their node. Meanwhile each node gathers its own ranks' parts.
//   reduce_scatter  In each node, the rank in charge of rank r combines the node's contributions for r, and
//                   sends the sum to r. Rank r combines the sums of the nodes.
//
// Both halves work at the same time, on successive segments of the parts. Parts may differ in size. All ranks
// of a node take part in the same number of local collectives, which the node with the most work decides.
// They come node by node: a round serves as many of that node's ranks as this node has.
#include <algorithm>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

std::size_t segment_count(std::size_t bytes) {
  return std::max<std::size_t>(
      1, (bytes + SEGMENT - 1) / SEGMENT);  // an empty part travels, too, so that it is compared
}

// Returns segment k of a part.
Slice segment_of(std::size_t bytes, std::size_t k) {
  const std::size_t begin = std::min(bytes, k * SEGMENT);
  return {begin, std::min(SEGMENT, bytes - begin)};
}

class PartsBetweenNodes {
 public:
  // `sizes` are those of the parts, by rank.
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
  // Ranks of another node from `first` on, one for each rank of this node.
  struct Round {
    std::size_t node = 0;
    std::size_t first = 0;
    std::size_t number = 0;  // counts all rounds
  };

  std::size_t mine() const { return shape_.count * shape_.element; }
  const std::vector<int>& here() const { return shape_.nodes[home_.node]; }
  bool shares() const { return here().size() > 1; }
  std::size_t others() const { return shape_.nodes.size() - 1; }  // number of other nodes
  std::size_t node_ahead(std::size_t ahead) const { return (home_.node + ahead) % shape_.nodes.size(); }
  // Returns the rank of that node that is in charge of this rank.
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
  // Returns the rank that this rank is in charge of in that round; -1 if none.
  int charge(const Round& round) const {
    const auto& ranks = shape_.nodes[round.node];
    const std::size_t number = round.first + home_.local;
    return number < ranks.size() ? ranks[number] : -1;
  }

  // Layout of the scratch memory: first the data to be sent, of even and of odd segments, then the data from
  // each other node.
  std::size_t block() const { return (std::min(longest_, SEGMENT) + 63) / 64 * 64; }
  Place block_of(const Round& round, std::size_t k) const {
    return {Area::SCRATCH, (k % 2 * rounds().size() + round.number) * block()};
  }
  Place block_from(std::size_t node) const {
    const std::size_t sent = shares() ? 2 * rounds().size() : 0;
    return {Area::SCRATCH, (sent + (node < home_.node ? node : node - 1)) * block()};
  }

  // The parts of the ranks of `node` from `first` on, one for each rank of this node.
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
  const std::size_t longest_;  // bytes of the longest part
};

}  // namespace

Schedule all_gather_between_nodes(const Shape& shape) {
  return PartsBetweenNodes(shape, shape.outputs).all_gather();
}

Schedule reduce_scatter_between_nodes(const Shape& shape) {
  return PartsBetweenNodes(shape, shape.inputs).reduce_scatter();
}

}  // namespace lockstep::algorithms
