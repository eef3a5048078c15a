#include "lockstep/parallel/zero/parameter_partition.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/str.h"

namespace lockstep {

ParameterPartition partition_parameters(const std::vector<std::vector<std::int64_t>>& sizes, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  ParameterPartition partition{.of_rank = {count, NumbersByGroup(sizes.size())},
                               .elements = std::vector<std::int64_t>(count)};
  std::size_t first = 0;  // number of the group's first parameter
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const std::vector<std::int64_t>& own = sizes[g];
    std::vector<std::size_t> order(own.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return own[a] > own[b]; });
    for (const std::size_t i : order) {
      const auto least = std::min_element(partition.elements.begin(), partition.elements.end());
      partition.of_rank[static_cast<std::size_t>(least - partition.elements.begin())][g].push_back(first + i);
      *least += own[i];
    }
    first += own.size();
  }
  return partition;
}

std::string to_text(const ParameterPartition& partition) {
  std::string text;
  for (std::size_t rank = 0; rank < partition.of_rank.size(); ++rank) {
    text += str("rank ", rank, ", ", partition.elements[rank], " elements:");
    for (std::size_t g = 0; g < partition.of_rank[rank].size(); ++g) {
      text += str(g > 0 ? ";" : "", " group ", g, ':');
      for (const std::size_t number : partition.of_rank[rank][g]) text += str(' ', number);
      if (partition.of_rank[rank][g].empty()) text += " none";
    }
    text += '\n';
  }
  return text;
}

}  // namespace lockstep
