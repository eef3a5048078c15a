#include "lockstep/job/place_on_node.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {
namespace {

// The node of each rank. The k-th rank of a machine that has one and the same number there is on the k-th
// node of that machine.
std::vector<int> nodes_of(const std::vector<RankOnMachine>& all) {
  std::map<std::pair<std::string, int>, int> seen;  // how many ranks of a machine had this number
  std::map<std::pair<std::string, int>, int> node_numbers;
  std::vector<int> nodes;
  for (const RankOnMachine& rank : all) {
    const int launcher = rank.local_rank < 0 ? 0 : seen[{rank.machine, rank.local_rank}]++;
    const auto next = static_cast<int>(node_numbers.size());
    nodes.push_back(node_numbers.try_emplace({rank.machine, launcher}, next).first->second);
  }
  return nodes;
}

}  // namespace

PlaceOnNode place_on_node(const std::vector<RankOnMachine>& all, int rank) {
  const std::vector<int> nodes = nodes_of(all);
  const auto mine = nodes.begin() + rank;
  const int given = all[static_cast<std::size_t>(rank)].local_rank;
  return {.local_rank = given >= 0 ? given : static_cast<int>(std::count(nodes.begin(), mine, *mine)),
          .local_size = static_cast<int>(std::count(nodes.begin(), nodes.end(), *mine)),
          .node_rank = *mine,
          .node_count = *std::max_element(nodes.begin(), nodes.end()) + 1};
}

}  // namespace lockstep
