// ParameterPiece: which part of a whole parameter a rank holds. The layers of this room register their pieces
// as parameters, and tell by pieces() where these belong: for initial values that do not depend on the number
// of ranks, for norms, and for checkpoints (model_state.h).
//
//   const Partition rows = partition_of({4096, 1024}, /*dim=*/0, {4096}, group.rank(), group.size());
//   const InitMethod normal = [](const at::Tensor& whole) { whole.normal_(0, 0.02); };
//   weight = register_parameter("weight", draw_piece(rows, normal));
//
//   partition_of({6, 2}, 0, {2, 4}, 1, 2)      // blocks of 2 and 4 rows; rank 1 of 2 holds
//   // {.shape = {6, 2}, .dim = 0, .stretches = {{.begin = 1, .size = 1}, {.begin = 4, .size = 2}}}
//
// Blocks      are cut into equal parts one by one, and a rank's parts lie side by side. So the heads of
//             query, key and value that belong together are on one rank, though the whole parameter has
//             all queries first. A block that is not equal parts for all ranks is the layer's to refuse.
// Memory      draw_piece() holds one whole parameter for a moment, never two.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::tensor_parallel {

// Indices of one dimension of the whole.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  bool operator==(const Stretch&) const = default;
};

struct Partition {
  std::vector<std::int64_t> shape;  // of the whole parameter
  std::int64_t dim = 0;             // along which it is cut
  std::vector<Stretch> stretches;   // this rank's, in the order in which its piece has them
  bool operator==(const Partition&) const = default;
};

// Pure. `blocks` add up to shape[dim].
Partition partition_of(std::vector<std::int64_t> shape, std::int64_t dim,
                       const std::vector<std::int64_t>& blocks, int rank, int ranks);

// The rows of a vocabulary that a rank holds: floor(vocabulary * rank / ranks) is the first. Parts differ by
// one row at most, so any vocabulary of at least as many rows as ranks can be cut. Pure.
Stretch vocab_range(std::int64_t vocabulary, int rank, int ranks);

struct ParameterPiece {
  std::string name;  // within its module
  Partition partition;
  at::Tensor tensor;  // the registered parameter
};

// A module of this room that holds pieces.
class HasPieces {
 public:
  HasPieces() = default;
  virtual ~HasPieces() = default;
  HasPieces(const HasPieces&) = default;
  HasPieces& operator=(const HasPieces&) = default;

  // Parameters that are not named here are whole, and equal on all ranks.
  virtual std::vector<ParameterPiece> pieces() const = 0;
};

// Fills a whole parameter in place; the argument is an at::Tensor of torch's default dtype.
using InitMethod = std::function<void(at::Tensor whole)>;

// Draws the whole and returns a copy of this rank's piece. Ranks whose generators have equal states get
// pieces of one and the same whole. A piece that is not all is marked as one (optim/model_part.h).
at::Tensor draw_piece(const Partition& partition, const InitMethod& init);

// The part of `whole` that a rank holds. Stretches that touch are no copy.
at::Tensor piece_of(const at::Tensor& whole, const Partition& partition);

}  // namespace lockstep::tensor_parallel
