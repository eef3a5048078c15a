#include "lockstep/parallel/zero/shard_layout.h"

#include <algorithm>

#include "lockstep/optim/chunks.h"

namespace lockstep {
namespace {

std::size_t chunks_in(std::size_t elements) {
  return (elements + optim::CHUNK_ELEMENTS - 1) / optim::CHUNK_ELEMENTS;
}

}  // namespace

ShardLayout shard_layout(std::span<const BucketParameter> parameters, const ShardPlan& plan,
                         const BucketPlan& buckets, int rank) {
  ShardLayout layout;
  layout.pieces.resize(parameters.size());
  layout.ranges.assign(buckets.size(), std::vector<BucketRange>(static_cast<std::size_t>(plan.ranks)));
  std::vector<std::size_t> offsets(parameters.size());  // in elements
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const BucketEntry& entry : buckets[b].entries) {
      layout.pieces[entry.parameter].bucket = b;
      offsets[entry.parameter] = entry.offset;
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ShardPiece& piece = layout.pieces[i];
    piece.dtype = parameters[i].dtype;
    piece.begin = offsets[i] * size_of(piece.dtype);
    piece.first_chunk = layout.chunks;
    layout.chunks += chunks_in(parameters[i].count);
  }
  for (const ShardSpec& shard : plan.shards) {
    ShardPiece& piece = layout.pieces[shard.parameter];
    const std::size_t begin = offsets[shard.parameter] + shard.offset;
    BucketRange& range = layout.ranges[piece.bucket][static_cast<std::size_t>(shard.rank)];
    if (range.count == 0) range.offset = begin;
    range.count = begin + shard.count - range.offset;
    if (shard.rank != rank) continue;
    piece.begin = begin * size_of(piece.dtype);
    piece.count = shard.count;
    piece.first_chunk += shard.offset / optim::CHUNK_ELEMENTS;
  }
  return layout;
}

std::vector<ShardChunk> chunks_of(const ShardLayout& layout, const std::vector<bool>& used) {
  std::vector<ShardChunk> chunks;
  for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
    const ShardPiece& piece = layout.pieces[i];
    for (std::size_t begin = 0; used[i] && begin < piece.count; begin += optim::CHUNK_ELEMENTS) {
      chunks.push_back({.piece = i,
                        .byte = piece.begin + begin * size_of(piece.dtype),
                        .count = std::min(optim::CHUNK_ELEMENTS, piece.count - begin),
                        .number = piece.first_chunk + begin / optim::CHUNK_ELEMENTS});
    }
  }
  return chunks;
}

}  // namespace lockstep
