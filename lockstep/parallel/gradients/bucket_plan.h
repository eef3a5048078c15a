// bucket_plan(): decides which gradients travel together, and in what order, the same on every rank. Pure:
// sizes in, table out.
//
//   const std::vector<BucketParameter> parameters = {{250, DType::FLOAT32}, {10, DType::FLOAT32}};
//   const BucketPlan plan =
//       bucket_plan(parameters, reverse_order(parameters.size()), {.first_bytes = 64, .bytes = 1024});
//   plan[0].entries[0].parameter;       // 1: backward reaches the last registered parameter first
//
// `order` lists the parameters as their gradients are expected to arrive. Gradients of one dtype and one
// optimiser group fill a bucket in that order. A bucket closes as soon as its bytes reach the cap, so it
// exceeds the cap by less than one gradient and no gradient is split. The first bucket of each kind has a cap
// of its own, usually smaller, so that communication starts early. Buckets are numbered by the arrival of
// their last gradient: that is the order in which they become complete.
//
// Every gradient starts at a multiple of 64 bytes, so that it never shares a cache line with its neighbour.
//
// Groups  Gradients that different optimiser groups step lie in different buckets, so that a bucket has one
//         learning rate.
// Shards  A bucket is padded until its length divides into that many parts of whole cache lines. shard_of()
//         names the part of a rank. One shard adds no padding.
//
//   const BucketPlan halves = bucket_plan(parameters, reverse_order(2), {}, /*shards=*/2);
//   const BucketRange mine = shard_of(halves[0], rank);      // mine.count elements from mine.offset on
//
// Fails   InvalidArgument: an order that is not a permutation of the parameters, a cap of zero bytes, no
//         shards, a rank without a shard.
// Source  Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.3.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"

namespace lockstep {

inline constexpr std::size_t GRADIENT_ALIGNMENT_BYTES = 64;

struct BucketParameter {
  std::size_t count = 0;  // in elements
  DType dtype = DType::FLOAT32;
  std::size_t group = 0;  // number of the optimiser group that steps it
};

struct BucketCaps {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{25} << 20;
};

struct BucketEntry {
  std::size_t parameter = 0;  // index into the list of parameters
  std::size_t offset = 0;     // in elements, from the start of the bucket
  bool operator==(const BucketEntry&) const = default;
};

struct BucketSpec {
  DType dtype = DType::FLOAT32;
  std::size_t group = 0;
  std::size_t elements = 0;  // length of the flat bucket, gaps between gradients and padding included
  std::size_t shards = 1;
  std::vector<BucketEntry> entries;
  bool operator==(const BucketSpec&) const = default;
};

using BucketPlan = std::vector<BucketSpec>;

BucketPlan bucket_plan(std::span<const BucketParameter> parameters, std::span<const std::size_t> order,
                       const BucketCaps& caps, std::size_t shards = 1);

struct BucketRange {
  std::size_t offset = 0;  // in elements, from the start of the bucket
  std::size_t count = 0;
  bool operator==(const BucketRange&) const = default;
};

// The part of the bucket that `rank` owns, if as many ranks share it as it has shards. The parts of all ranks
// cover the bucket in rank order.
BucketRange shard_of(const BucketSpec& bucket, std::size_t rank);

// {count-1, ..., 1, 0}: the expected order before any backward has run.
std::vector<std::size_t> reverse_order(std::size_t count);

// All of `count` parameters: first those whose gradients arrived, in that order, then the others in reverse
// order. A parameter that is named several times counts at its last place.
std::vector<std::size_t> arrival_order(std::span<const std::size_t> arrived, std::size_t count);

// One line per bucket, for logs and tests: "#0 float32 1280 bytes: 5 4 3". A group other than 0, and several
// shards, are named: "#1 float32 256 bytes, group 2, 4 shards of 64: 1 0".
std::string to_string(const BucketPlan& plan);

}  // namespace lockstep
