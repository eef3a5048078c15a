// reduce between nodes whose ranks share memory. Each segment passes through two steps. Two segments are
// under way at once, each in another step:
//
//   combine   in each node: in the root's node, the root combines the whole segment. In every other node,
//             each rank combines a slice of it
//   send      each rank of another node sends its slice to the root, which combines the nodes' sums
//
// So each node sends the bytes once, through all of its ranks, instead of once for each rank. Small data are
// one slice.
#include <algorithm>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

class ReduceBetweenNodes {
 public:
  explicit ReduceBetweenNodes(const Shape& shape)
      : shape_(shape),
        bytes_(shape.count * shape.element),
        home_(home_of(shape.nodes, shape.rank)),
        root_home_(home_of(shape.nodes, shape.root)) {}

  Schedule schedule() const {
    const std::size_t segments = std::max<std::size_t>(1, (bytes_ + SEGMENT - 1) / SEGMENT);
    Schedule all{std::vector<Step>(segments + 1), 0};
    if (is_root()) all.scratch_bytes = (shape_.nodes.size() - 1) * block();
    if (!is_at_root() && shares()) all.scratch_bytes = 2 * block();
    for (std::size_t k = 0; k < segments; ++k) {
      if (shares()) combine_here(all.steps[k], k);
      if (is_root()) receive_and_combine(all.steps[k + 1], k);
      if (!is_at_root()) send_mine(all.steps[k + 1], k);
    }
    return all;
  }

 private:
  bool is_root() const { return shape_.rank == shape_.root; }
  bool is_at_root() const { return home_.node == root_home_.node; }  // true for every rank of the root's node
  bool shares() const { return shape_.nodes[home_.node].size() > 1; }
  std::size_t block() const { return (std::min(bytes_, SEGMENT) + 63) / 64 * 64; }
  Slice segment(std::size_t k) const {
    const std::size_t begin = k * SEGMENT;
    return {begin, std::min(SEGMENT, bytes_ - begin)};
  }
  // Of the sum of segment k in that node, the slice of rank `local`.
  Slice slice(std::size_t k, std::size_t node, std::size_t local) const {
    const Slice whole = segment(k);
    if (node == root_home_.node) return local == root_home_.local ? whole : Slice{whole.offset, 0};
    const std::size_t slices = bytes_ <= SMALL ? 1 : shape_.nodes[node].size();
    if (local >= slices) return {whole.offset, 0};
    const Slice inside = slice_of(whole.bytes, static_cast<int>(slices), static_cast<int>(local));
    return {whole.offset + inside.offset, inside.bytes};
  }
  // An empty part is sent once, so that it is compared.
  bool travels(const Slice& part, std::size_t local) const {
    return part.bytes > 0 || (bytes_ == 0 && local == 0);
  }

  Place sum_here(std::size_t k) const {
    if (!shares()) return {Area::INPUT, segment(k).offset};
    if (is_root()) return {Area::OUTPUT, segment(k).offset};
    // in the root's node: nothing is stored beside the root's sum
    return {Area::SCRATCH, is_at_root() ? 0 : k % 2 * block()};
  }

  void combine_here(Step& step, std::size_t k) const {
    Local local{Verb::REDUCE_SCATTER, {}, {}, 0};
    for (std::size_t i = 0; i < shape_.nodes[home_.node].size(); ++i) {
      const Slice part = slice(k, home_.node, i);
      local.parts.push_back({{Area::INPUT, part.offset}, part.bytes});
    }
    local.result = {sum_here(k), local.parts[home_.local].bytes};
    step.locals.push_back(std::move(local));
  }

  void send_mine(Step& step, std::size_t k) const {
    const Slice mine = slice(k, home_.node, home_.local);
    if (!travels(mine, home_.local)) return;
    step.sends.push_back({shape_.root, static_cast<std::uint32_t>(k), sum_here(k), mine.bytes, bytes_});
  }

  void receive_and_combine(Step& step, std::size_t k) const {
    const Slice whole = segment(k);
    Combine all{{}, {Area::OUTPUT, whole.offset}, whole.bytes, /*of_nodes=*/true};
    for (std::size_t node = 0; node < shape_.nodes.size(); ++node) {
      if (node == home_.node) {
        all.inputs.push_back(sum_here(k));
        continue;
      }
      const Place block_of_node{Area::SCRATCH, (node < home_.node ? node : node - 1) * block()};
      all.inputs.push_back(block_of_node);
      const auto& ranks = shape_.nodes[node];
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        const Slice part = slice(k, node, i);
        const Place place{Area::SCRATCH, block_of_node.offset + part.offset - whole.offset};
        if (travels(part, i))
          step.receives.push_back({ranks[i], static_cast<std::uint32_t>(k), place, part.bytes, bytes_});
      }
    }
    step.combines.push_back(std::move(all));
  }

  const Shape& shape_;
  const std::size_t bytes_;
  const Home home_;
  const Home root_home_;
};

}  // namespace

Schedule reduce_between_nodes(const Shape& shape) { return ReduceBetweenNodes(shape).schedule(); }

}  // namespace lockstep::algorithms
