// shard_layout(): where one rank's parts of the gradients lie in the buckets, and the chunks in which a norm
// is added. Pure: plans in, tables out.
//
//   const ShardLayout layout = shard_layout(parameters, plan, buckets, rank);
//   layout.pieces[3];                  // this rank's part of parameter 3
//   layout.ranges[0][1];               // what rank 1 steps of bucket 0
//   for (const ShardChunk& chunk : chunks_of(layout, used)) square(chunk);
//
// The chunks of all parameters are numbered in order. Each parameter begins with a chunk of its own, as in
// the optimisers (optim/chunks.h). A sum over chunks in that order has the bits of one rank's sum.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/parallel/gradients/bucket_plan.h"
#include "lockstep/parallel/zero/shard_plan.h"

namespace lockstep {

struct ShardPiece {
  std::size_t bucket = 0;
  std::size_t begin = 0;        // in bytes, within the bucket
  std::size_t count = 0;        // in elements; 0 if the rank has no part
  std::size_t first_chunk = 0;  // number of its first chunk
  DType dtype = DType::FLOAT32;
  bool operator==(const ShardPiece&) const = default;
};

struct ShardLayout {
  std::vector<ShardPiece> pieces;                // those of this rank, by parameter
  std::vector<std::vector<BucketRange>> ranges;  // ranges of each rank's parts, by bucket, by rank
  std::size_t chunks = 0;                        // number of chunks of all parameters
};

// `buckets` has each parameter once, in the parameters' order.
ShardLayout shard_layout(std::span<const BucketParameter> parameters, const ShardPlan& plan,
                         const BucketPlan& buckets, int rank);

struct ShardChunk {
  std::size_t piece = 0;   // number of the piece, which is that of the parameter
  std::size_t byte = 0;    // in the bucket
  std::size_t count = 0;   // in elements
  std::size_t number = 0;  // among the chunks of all parameters
};

// Returns the chunks of the rank's pieces of used parameters.
std::vector<ShardChunk> chunks_of(const ShardLayout& layout, const std::vector<bool>& used);

}  // namespace lockstep
