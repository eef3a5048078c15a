// How gradients that are reduced to their owners during backward travel and where they stay. Pure: sizes in,
// tables out.
//
//   const BucketPlan buckets = scatter_buckets(parameters, order, caps);     // in which they travel
//   const ShardLayout travels = shard_layout(parameters, plan, buckets, rank);
//   const GradientShare share = gradient_share(parameters, plan, rank);      // in which this rank's stay
//
// Buckets  are those of bucket_plan(), in the order in which gradients come, with two differences. The
//          gradients of a bucket lie in the order of parameters, so that each rank's parts are one stretch.
//          And a gradient of a bucket's size or more has a bucket, and an optimiser group, of its own: it
//          travels from where autograd made it.
// Share    this rank's parts of the gradients of one dtype, end to end, each from a multiple of 64 bytes on.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/parallel/gradients/bucket_plan.h"
#include "lockstep/parallel/zero/shard_layout.h"
#include "lockstep/parallel/zero/shard_plan.h"

namespace lockstep {

BucketPlan scatter_buckets(std::span<const BucketParameter> parameters, std::span<const std::size_t> order,
                           const BucketCaps& caps);
// It holds one gradient, which is not packed.
bool travels_alone(const BucketSpec& bucket);

struct GradientShare {
  ShardLayout layout;  // its pieces lie in flats, one of each dtype, in place of buckets; it has no ranges
  std::vector<std::size_t> elements;  // by flat, in the order of their first parameters
};

GradientShare gradient_share(std::span<const BucketParameter> parameters, const ShardPlan& plan, int rank);

}  // namespace lockstep
