// shard_plan(): decides which part of which parameter each rank steps. Pure: sizes in, table out.
//
//   const std::vector<BucketParameter> parameters = {{100000, DType::FLOAT32}, {100000, DType::FLOAT32}};
//   const ShardPlan plan = shard_plan(parameters, /*ranks=*/2);
//   plan.shards[0];        // parameter 0, elements 0 to 100000, of rank 0
//   std::cout << to_string(plan);
//
// The parameters are laid end to end in their order and cut into as many stretches of equal bytes as there
// are ranks. A cut inside a parameter moves to the nearest multiple of `granule` elements of that parameter,
// or to its end. So a rank has one stretch, at most one part of each parameter, and a share that differs from
// an equal one by less than a granule.
//
// Granule  as many elements as a chunk of the optimisers (optim/chunks.h). So a norm that is added chunk by
//          chunk has the same bits for every assignment of chunks to ranks. A model of less than a granule
//          per rank is not cut evenly, and a parameter smaller than a granule is not cut at all.
// Fails    InvalidArgument: no ranks, a granule of no elements.
// Source   Rajbhandari et al., "ZeRO", SC 2020, section 5.1: each of N ranks has the states of one N-th of
//          the parameters.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/parallel/gradients/bucket_plan.h"

namespace lockstep {

struct ShardSpec {
  std::size_t parameter = 0;  // index into the list of parameters
  std::size_t offset = 0;     // in elements
  std::size_t count = 0;
  int rank = 0;  // the rank that steps it
  bool operator==(const ShardSpec&) const = default;
};

struct ShardPlan {
  int ranks = 1;
  std::vector<ShardSpec> shards;   // by parameter, then by rank; none is empty
  std::vector<std::size_t> bytes;  // bytes of the parameters' parts, by rank
  bool operator==(const ShardPlan&) const = default;
};

ShardPlan shard_plan(std::span<const BucketParameter> parameters, int ranks, std::size_t granule);

// One line per rank, elements in brackets: "rank 0: 662144 bytes: 0[0:100000] 1[0:65536]".
std::string to_string(const ShardPlan& plan);

}  // namespace lockstep
