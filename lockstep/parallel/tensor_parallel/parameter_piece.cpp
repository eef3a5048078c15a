#include "lockstep/parallel/tensor_parallel/parameter_piece.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "lockstep/optim/model_part.h"

namespace lockstep::tensor_parallel {

Partition partition_of(std::vector<std::int64_t> shape, std::int64_t dim,
                       const std::vector<std::int64_t>& blocks, int rank, int ranks) {
  Partition partition{.shape = std::move(shape), .dim = dim, .stretches = {}};
  std::int64_t begin = 0;
  for (const std::int64_t block : blocks) {
    const std::int64_t size = block / ranks;
    partition.stretches.push_back({.begin = begin + rank * size, .size = size});
    begin += block;
  }
  return partition;
}

Stretch vocab_range(std::int64_t vocabulary, int rank, int ranks) {
  const std::int64_t begin = vocabulary * rank / ranks;
  return {.begin = begin, .size = vocabulary * (rank + 1) / ranks - begin};
}

at::Tensor piece_of(const at::Tensor& whole, const Partition& partition) {
  std::vector<at::Tensor> parts;
  for (const Stretch& stretch : partition.stretches)
    parts.push_back(whole.narrow(partition.dim, stretch.begin, stretch.size));
  return parts.size() == 1 ? parts[0] : at::cat(parts, partition.dim);
}

at::Tensor draw_piece(const Partition& partition, const InitMethod& init) {
  const at::NoGradGuard no_grad;
  const at::Tensor whole = at::empty(partition.shape);
  init(whole);
  at::Tensor piece = piece_of(whole, partition);
  if (piece.is_alias_of(whole)) piece = piece.clone(at::MemoryFormat::Contiguous);
  if (piece.numel() != whole.numel()) optim::mark_as_part(piece, optim::ModelPart::PIECE);
  return piece;
}

}  // namespace lockstep::tensor_parallel
