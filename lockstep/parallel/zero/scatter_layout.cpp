#include "lockstep/parallel/zero/scatter_layout.h"

#include <algorithm>

#include "lockstep/base/round_up.h"

namespace lockstep {

BucketPlan scatter_buckets(std::span<const BucketParameter> parameters, std::span<const std::size_t> order,
                           const BucketCaps& caps) {
  std::vector<BucketParameter> grouped(parameters.begin(), parameters.end());
  for (std::size_t i = 0; i < grouped.size(); ++i)
    grouped[i].group = grouped[i].count * size_of(grouped[i].dtype) >= caps.bytes ? 1 + i : 0;
  BucketPlan plan = bucket_plan(grouped, order, caps);
  for (BucketSpec& bucket : plan) {
    std::sort(bucket.entries.begin(), bucket.entries.end(),
              [](const BucketEntry& a, const BucketEntry& b) { return a.parameter < b.parameter; });
    bucket.elements = 0;
    for (BucketEntry& entry : bucket.entries) {
      entry.offset = round_up(bucket.elements, GRADIENT_ALIGNMENT_BYTES / size_of(bucket.dtype));
      bucket.elements = entry.offset + parameters[entry.parameter].count;
    }
  }
  return plan;
}

bool travels_alone(const BucketSpec& bucket) { return bucket.group != 0; }

// As with one bucket for each dtype, without what other ranks have of it.
GradientShare gradient_share(std::span<const BucketParameter> parameters, const ShardPlan& plan, int rank) {
  BucketPlan buckets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto is_of_dtype = [&](const BucketSpec& bucket) { return bucket.dtype == parameters[i].dtype; };
    auto bucket = std::find_if(buckets.begin(), buckets.end(), is_of_dtype);
    if (bucket == buckets.end())
      bucket = buckets.insert(buckets.end(), BucketSpec{.dtype = parameters[i].dtype, .entries = {}});
    bucket->entries.push_back({.parameter = i, .offset = 0});
  }
  GradientShare share{.layout = shard_layout(parameters, plan, buckets, rank),
                      .elements = std::vector<std::size_t>(buckets.size())};
  share.layout.ranges.clear();
  for (ShardPiece& piece : share.layout.pieces) {
    std::size_t& elements = share.elements[piece.bucket];
    if (piece.count > 0) elements = round_up(elements, GRADIENT_ALIGNMENT_BYTES / size_of(piece.dtype));
    piece.begin = elements * size_of(piece.dtype);
    elements += piece.count;
  }
  return share;
}

}  // namespace lockstep
