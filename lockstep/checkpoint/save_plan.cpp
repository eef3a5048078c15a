#include "lockstep/checkpoint/save_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checkpoint_index.h"

namespace lockstep {
namespace {

// Number of elements of one step in dimension `d`.
std::int64_t stride_of(const std::vector<std::int64_t>& sizes, std::size_t d) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1, sizes.end(), std::int64_t{1},
                         std::multiplies<>());
}

// A box of `count` steps in dimension `d` from the element `first` on, of one step in the dimensions before,
// and of all in those behind.
Box slab(const std::vector<std::int64_t>& shape, std::int64_t first, std::size_t d, std::int64_t count) {
  Box box = box_of(shape);
  std::int64_t rest = first;
  for (std::size_t i = 0; i <= d && i < shape.size(); ++i) {
    const std::int64_t stride = stride_of(shape, i);
    box.offsets[i] = rest / stride;
    box.sizes[i] = i == d ? count : 1;
    rest %= stride;
  }
  return box;
}

std::string bracketed(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += str(text.empty() ? "" : ", ", number);
  return str('[', text, ']');
}

// The dimension in which a box can be cut: the first with more than one step.
std::size_t cut_dimension(const Box& box) {
  std::size_t d = 0;
  while (d + 1 < box.sizes.size() && box.sizes[d] == 1) ++d;
  return d;
}

// Cuts off the first `steps` of the cut dimension; `box` keeps the rest.
Box cut_off(Box& box, std::size_t d, std::int64_t steps) {
  Box head = box;
  head.sizes[d] = steps;
  box.offsets[d] += steps;
  box.sizes[d] -= steps;
  return head;
}

// A tensor that only some ranks hold: its boxes, and the holders of each.
struct SharedOut {
  DeclaredTensor tensor;
  std::map<Box, std::vector<std::size_t>> holders;
};

class Planner {
 public:
  Planner(std::size_t ranks, std::uint64_t most_piece_bytes)
      : plan_{.tensors = {}, .of_rank = std::vector<std::vector<PlannedPiece>>(ranks)},
        bytes_(ranks),
        most_piece_bytes_(most_piece_bytes) {}

  void add_shards(const std::vector<std::vector<DeclaredShard>>& shards) {
    std::map<std::string, SharedOut> tensors;
    for (std::size_t rank = 0; rank < shards.size(); ++rank)
      for (const DeclaredShard& shard : shards[rank]) collect(tensors[shard.tensor.name], shard, rank);
    for (auto& [name, shared] : tensors) {
      expect_tiling(shared);
      plan_.tensors.push_back(shared.tensor);
    }
    // Boxes with one holder leave no choice. The others then go to the rank with the fewest bytes.
    for (const bool alone : {true, false})
      for (const auto& [name, shared] : tensors)
        for (const auto& [box, holders] : shared.holders)
          if ((holders.size() == 1) == alone) take(least_loaded(holders), shared.tensor, box);
  }

  // One rank after the other takes tensors, in the order of their names, until it has its share.
  void add_replicated(std::vector<DeclaredTensor> tensors) {
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    std::uint64_t total = std::accumulate(bytes_.begin(), bytes_.end(), std::uint64_t{0});
    for (const DeclaredTensor& tensor : tensors) total += bytes_of_box(tensor, box_of(tensor.shape));
    const std::uint64_t share = (total + bytes_.size() - 1) / bytes_.size();
    std::size_t rank = 0;
    for (const DeclaredTensor& tensor : tensors) {
      plan_.tensors.push_back(tensor);
      Box rest = box_of(tensor.shape);
      while (elements_of(rest) > 0) {
        while (rank + 1 < bytes_.size() && bytes_[rank] >= share) ++rank;
        take(rank, tensor, part_for(rank, share, tensor, rest));
      }
    }
  }

  SavePlan finish() {
    auto& tensors = plan_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    const auto twice = std::adjacent_find(tensors.begin(), tensors.end(),
                                          [](const auto& a, const auto& b) { return a.name == b.name; });
    if (twice != tensors.end())
      throw InvalidArgument(
          str("checkpoint: the name ", in_quotes(twice->name),
              " occurs twice; give the items of the state, and the tensors in them, different names"));
    return std::move(plan_);
  }

 private:
  static std::uint64_t bytes_of_box(const DeclaredTensor& tensor, const Box& box) {
    return static_cast<std::uint64_t>(elements_of(box)) * checkpoint_dtype_size(tensor.dtype);
  }

  static void collect(SharedOut& shared, const DeclaredShard& shard, std::size_t rank) {
    if (shared.holders.empty()) shared.tensor = shard.tensor;
    if (!(shared.tensor == shard.tensor))
      throw InvalidArgument(str("checkpoint: rank ", rank, " declares ", in_quotes(shard.tensor.name), " as ",
                                shard.tensor.dtype, ' ', bracketed(shard.tensor.shape), ", another rank as ",
                                shared.tensor.dtype, ' ', bracketed(shared.tensor.shape)));
    shared.holders[shard.box].push_back(rank);
  }

  static void expect_tiling(const SharedOut& shared) {
    std::vector<CheckpointPiece> pieces;
    for (const auto& [box, holders] : shared.holders)
      if (elements_of(box) > 0)
        pieces.push_back({.key = {}, .offsets = box.offsets, .sizes = box.sizes, .xxh128 = {}});
    const std::string defect = defect_of_pieces(shared.tensor.shape, pieces);
    if (!defect.empty())
      throw InvalidArgument(str("checkpoint: the ranks' shards of ", in_quotes(shared.tensor.name), ' ',
                                bracketed(shared.tensor.shape), " do not make up the tensor: ", defect));
  }

  std::size_t least_loaded(const std::vector<std::size_t>& ranks) const {
    return *std::min_element(ranks.begin(), ranks.end(),
                             [&](std::size_t a, std::size_t b) { return bytes_[a] < bytes_[b]; });
  }

  // Returns the part of `rest` for the rank: all of it, or as many rows as it has room for, at least one.
  Box part_for(std::size_t rank, std::uint64_t share, const DeclaredTensor& tensor, Box& rest) const {
    const bool is_last = rank + 1 == bytes_.size();
    const std::uint64_t room = share - std::min(share, bytes_[rank]);
    if (is_last || rest.sizes.empty() || bytes_of_box(tensor, rest) <= room) {
      Box all = rest;
      if (rest.sizes.empty()) {
        rest = {.offsets = {0}, .sizes = {0}};  // nothing is left of a scalar
      } else {
        rest.sizes[cut_dimension(rest)] = 0;
      }
      return all;
    }
    const std::size_t d = cut_dimension(rest);
    const std::uint64_t row = bytes_of_box(tensor, rest) / static_cast<std::uint64_t>(rest.sizes[d]);
    const auto rows = static_cast<std::int64_t>((room + row - 1) / row);
    return cut_off(rest, d, std::min(rows, rest.sizes[d]));
  }

  void take(std::size_t rank, const DeclaredTensor& tensor, Box box) {
    while (elements_of(box) > 0) {
      const std::uint64_t bytes = bytes_of_box(tensor, box);
      const std::size_t d = cut_dimension(box);
      Box piece = box;
      if (bytes > most_piece_bytes_ && !box.sizes.empty() && box.sizes[d] > 1) {
        const std::uint64_t row = bytes / static_cast<std::uint64_t>(box.sizes[d]);
        const auto rows = static_cast<std::int64_t>(std::max<std::uint64_t>(1, most_piece_bytes_ / row));
        piece = cut_off(box, d, std::min(rows, box.sizes[d]));
      } else {
        box = {.offsets = {0}, .sizes = {0}};
      }
      const std::uint64_t of_piece = bytes_of_box(tensor, piece);
      bytes_[rank] += of_piece;
      const bool is_whole = piece.sizes == tensor.shape;
      plan_.of_rank[rank].push_back({tensor.name, std::move(piece), of_piece, is_whole});
    }
  }

  SavePlan plan_;
  std::vector<std::uint64_t> bytes_;  // by rank
  const std::uint64_t most_piece_bytes_;
};

}  // namespace

Box box_of(const std::vector<std::int64_t>& shape) {
  return {.offsets = std::vector<std::int64_t>(shape.size()), .sizes = shape};
}

std::int64_t elements_of(const Box& box) {
  return std::accumulate(box.sizes.begin(), box.sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<Box> boxes_of_range(const std::vector<std::int64_t>& shape, std::int64_t first,
                                std::int64_t count) {
  std::vector<Box> boxes;
  if (shape.empty() && count == 1) boxes.push_back({});
  while (!shape.empty() && count > 0) {
    // The outermost dimension in which a whole step begins here and fits.
    std::size_t d = 0;
    while (first % stride_of(shape, d) != 0 || count < stride_of(shape, d)) ++d;
    const std::int64_t stride = stride_of(shape, d);
    const std::int64_t until_next_step_outside = shape[d] - first / stride % shape[d];
    const std::int64_t steps = std::min(count / stride, until_next_step_outside);
    boxes.push_back(slab(shape, first, d, steps));
    first += steps * stride;
    count -= steps * stride;
  }
  return boxes;
}

SavePlan save_plan(const std::vector<DeclaredTensor>& replicated,
                   const std::vector<std::vector<DeclaredShard>>& shards, std::uint64_t most_piece_bytes) {
  Planner planner(shards.size(), most_piece_bytes);
  planner.add_shards(shards);
  planner.add_replicated(replicated);
  return planner.finish();
}

std::string to_text(const SavePlan& plan) {
  std::string text;
  for (std::size_t rank = 0; rank < plan.of_rank.size(); ++rank) {
    std::uint64_t bytes = 0;
    for (const PlannedPiece& piece : plan.of_rank[rank]) bytes += piece.bytes;
    text += str("rank ", rank, ", ", bytes, " bytes\n");
    for (const PlannedPiece& piece : plan.of_rank[rank])
      text +=
          str("  ", piece.tensor, ' ', bracketed(piece.box.offsets), " + ", bracketed(piece.box.sizes), '\n');
  }
  return text;
}

}  // namespace lockstep
