// Sums of squares over whole tensors, in float64, with the same bits for any number of threads. If shards
// begin at multiples of CHUNK_ELEMENTS, the bits are also the same for any number of ranks that share a
// parameter. One rank computes the sum of a chunk, and all ranks add the sums of a parameter's chunks in
// their order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/optim/norm_ranks.h"
#include "lockstep/optim/step_kernels.h"

namespace lockstep::optim {

struct NormItem {
  at::Tensor param;
  at::Tensor grad;
  double weight_decay = 0;
  NormShard shard;
};

// The sums of chunk `chunk` of an item's own elements.
struct ChunkSquares {
  std::size_t item = 0;
  std::size_t chunk = 0;
  SquareSums sums;
};

// |param|^2 and |grad + weight_decay * param|^2 of each whole parameter; real tensors.
std::vector<SquareSums> square_sums(const std::vector<NormItem>& items, const NormRanks& ranks);

// Adds the chunks of all ranks to the sums of items. Before, the sums are this rank's alone. All ranks have
// the same items.
void add_up(std::vector<SquareSums>& sums, std::span<const ChunkSquares> chunks,
            std::span<const NormShard> shards, const NormRanks& ranks);

// |t|^2 of each tensor; real. Of tensors on one GPU the host waits once.
std::vector<double> squares_of(const std::vector<at::Tensor>& tensors);

// |t|^2 over all tensors together; real or complex. On this rank alone.
double square_sum(const std::vector<at::Tensor>& tensors);
// The same of the whole model, over its ranks; real tensors. Each element counts once.
double square_sum(const std::vector<at::Tensor>& tensors, std::span<const NormShard> shards,
                  const NormRanks& ranks);

}  // namespace lockstep::optim
