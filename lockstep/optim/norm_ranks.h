// NormRanks: the ranks over which LARS and LAMB take the norm of a parameter, and what a rank holds of it.
// Ranks that share an optimiser's work have shards of a parameter (parameter_shard.h); tensor-parallel ranks
// have pieces of it (parallel/tensor_parallel). Of a sharded piece the sums of shards are added first. The
// norm of all gradients together is that of the model, whose layers may lie on several ranks.
#pragma once

#include <cstdint>

#include "lockstep/optim/norm_reducer.h"

namespace lockstep::optim {

// The place of a tensor's elements in a whole parameter, in real numbers.
struct NormShard {
  std::int64_t elements = 0;  // number of elements of the whole parameter
  std::int64_t offset = 0;
  bool is_piece = false;  // the "whole parameter" is itself a piece; other ranks have the rest
  bool counts = true;     // in the norm of the model: of what several ranks have, on one of them
};

// The ranks over which norms are taken. The sums of shards are added first, then those of pieces.
struct NormRanks {
  NormReducer shards;
  NormReducer pieces;
  NormReducer model;  // local: the model lies on the ranks of `pieces`
};

}  // namespace lockstep::optim
