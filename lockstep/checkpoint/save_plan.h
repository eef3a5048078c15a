// Decides which rank writes which part of which tensor into a checkpoint. Pure: every rank makes the same
// plan from the same declarations.
//
//   const SavePlan plan = save_plan({{"model.fc.weight", "F32", {6, 4}}}, {{}, {}});
//   std::cout << to_text(plan);
//
//   rank 0, 48 bytes
//     model.fc.weight [0, 0] + [3, 4]
//   rank 1, 48 bytes
//     model.fc.weight [3, 0] + [3, 4]
//
// Replicated  tensors, which all ranks hold whole, are written once. Their bytes are spread over the ranks so
//             that each writes about the same number. Tensors are cut between rows.
// Shards      are boxes of a tensor that some ranks hold (parts of a parameter, or a rank's own state). If
//             several ranks hold the same box, the one with the fewest bytes to write writes it.
// Pieces      of more than MOST_PIECE_BYTES are cut into several. So a reader that needs a part reads and
//             checks little more than that part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr std::uint64_t MOST_PIECE_BYTES = std::uint64_t{64} << 20U;

// A box of a tensor: `sizes` elements in each dimension, from `offsets` on.
struct Box {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;

  bool operator==(const Box&) const = default;
  auto operator<=>(const Box&) const = default;
};

// The whole of a tensor.
Box box_of(const std::vector<std::int64_t>& shape);
std::int64_t elements_of(const Box& box);
// Returns the boxes, in the order of memory, that make up `count` elements from `first` on of a contiguous
// tensor. There are at most 2 D - 1 of D dimensions.
std::vector<Box> boxes_of_range(const std::vector<std::int64_t>& shape, std::int64_t first,
                                std::int64_t count);

struct DeclaredTensor {
  std::string name;
  std::string dtype;                // in the words of formats/checkpoint_index.h
  std::vector<std::int64_t> shape;  // of the whole tensor

  bool operator==(const DeclaredTensor&) const = default;
};

struct DeclaredShard {
  DeclaredTensor tensor;
  Box box;
};

struct PlannedPiece {
  std::string tensor;
  Box box;
  std::uint64_t bytes = 0;
  bool is_whole = false;  // the shard is the whole tensor
};

struct SavePlan {
  std::vector<DeclaredTensor> tensors;             // all, by name
  std::vector<std::vector<PlannedPiece>> of_rank;  // in the order in which the rank writes them
};

// `shards` are those of each rank. Throws InvalidArgument: a name that occurs twice, ranks that declare one
// name with different shapes or dtypes, shards that overlap or leave a hole.
SavePlan save_plan(const std::vector<DeclaredTensor>& replicated,
                   const std::vector<std::vector<DeclaredShard>>& shards,
                   std::uint64_t most_piece_bytes = MOST_PIECE_BYTES);

std::string to_text(const SavePlan& plan);

}  // namespace lockstep
