#include "lockstep/parallel/gradients/bucket_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

void check(std::span<const BucketParameter> parameters, std::span<const std::size_t> order,
           const BucketCaps& caps) {
  if (caps.first_bytes == 0 || caps.bytes == 0)
    throw InvalidArgument("bucket_plan: a bucket cap must be at least one byte");
  std::vector<bool> seen(parameters.size(), false);
  for (const std::size_t parameter : order) {
    if (parameter >= parameters.size() || seen[parameter]) {
      throw InvalidArgument(str("bucket_plan: the order must name each of ", parameters.size(),
                                " parameters once, but ", parameter, " is ",
                                parameter >= parameters.size() ? "none of them" : "named twice"));
    }
    seen[parameter] = true;
  }
  if (order.size() != parameters.size()) {
    throw InvalidArgument(
        str("bucket_plan: the order names ", order.size(), " of ", parameters.size(), " parameters"));
  }
}

std::size_t align_up(std::size_t elements, DType dtype, std::size_t lines = 1) {
  const std::size_t step = std::max<std::size_t>(1, GRADIENT_ALIGNMENT_BYTES / size_of(dtype)) * lines;
  return (elements + step - 1) / step * step;
}

using Kind = std::pair<std::size_t, DType>;  // group and dtype of a bucket

// The bucket of one kind that still accepts gradients.
struct OpenBucket {
  BucketSpec spec;
  std::size_t cap = 0;
  std::size_t last_arrival = 0;
};

}  // namespace

BucketPlan bucket_plan(std::span<const BucketParameter> parameters, std::span<const std::size_t> order,
                       const BucketCaps& caps, std::size_t shards) {
  check(parameters, order, caps);
  if (shards == 0) throw InvalidArgument("bucket_plan: a bucket has at least one shard");
  std::map<Kind, OpenBucket> open;
  std::vector<std::pair<std::size_t, BucketSpec>> closed;  // each with the arrival of its last gradient
  const auto close = [&](OpenBucket& bucket) {
    bucket.spec.shards = shards;
    if (shards > 1) bucket.spec.elements = align_up(bucket.spec.elements, bucket.spec.dtype, shards);
    closed.emplace_back(bucket.last_arrival, std::move(bucket.spec));
    bucket = {.spec = {}, .cap = caps.bytes};
  };
  for (std::size_t arrival = 0; arrival < order.size(); ++arrival) {
    const auto [count, dtype, group] = parameters[order[arrival]];
    OpenBucket& bucket = open[{group, dtype}];
    if (bucket.cap == 0) bucket.cap = caps.first_bytes;
    const std::size_t offset = align_up(bucket.spec.elements, dtype);
    bucket.spec.dtype = dtype;
    bucket.spec.group = group;
    bucket.spec.entries.push_back({.parameter = order[arrival], .offset = offset});
    bucket.spec.elements = offset + count;
    bucket.last_arrival = arrival;
    if (bucket.spec.elements * size_of(dtype) >= bucket.cap) close(bucket);
  }
  for (auto& [kind, bucket] : open) {
    if (!bucket.spec.entries.empty()) close(bucket);
  }
  std::sort(closed.begin(), closed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  BucketPlan plan;
  for (auto& [arrival, spec] : closed) plan.push_back(std::move(spec));
  return plan;
}

BucketRange shard_of(const BucketSpec& bucket, std::size_t rank) {
  if (rank >= bucket.shards) {
    throw InvalidArgument(
        str("shard_of: rank ", rank, " has no part of a bucket that ", bucket.shards, " ranks share"));
  }
  const std::size_t count = bucket.elements / bucket.shards;
  return {.offset = rank * count, .count = count};
}

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<std::size_t> arrival_order(std::span<const std::size_t> arrived, std::size_t count) {
  std::vector<bool> seen(count, false);
  std::vector<std::size_t> order;
  for (std::size_t i = arrived.size(); i-- > 0;) {
    if (!seen.at(arrived[i])) order.push_back(arrived[i]);
    seen[arrived[i]] = true;
  }
  std::reverse(order.begin(), order.end());
  for (const std::size_t parameter : reverse_order(count)) {
    if (!seen[parameter]) order.push_back(parameter);
  }
  return order;
}

std::string to_string(const BucketPlan& plan) {
  std::string text;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const BucketSpec& bucket = plan[i];
    const std::size_t element = size_of(bucket.dtype);
    text += str("#", i, " ", name_of(bucket.dtype), " ", bucket.elements * element, " bytes");
    if (bucket.group != 0) text += str(", group ", bucket.group);
    if (bucket.shards > 1)
      text += str(", ", bucket.shards, " shards of ", bucket.elements / bucket.shards * element);
    text += ":";
    for (const BucketEntry& entry : bucket.entries) text += str(" ", entry.parameter);
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
