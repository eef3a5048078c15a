#include "lockstep/parallel/zero/shard_plan.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// The rank's stretch ends `bytes` bytes after the parameter's beginning. Returns that place within the
// parameter.
std::size_t cut_at(const BucketParameter& parameter, double bytes, std::size_t granule) {
  const double element = bytes / static_cast<double>(size_of(parameter.dtype));
  if (element >= static_cast<double>(parameter.count)) return parameter.count;
  const auto granules = static_cast<std::size_t>(element / static_cast<double>(granule) + 0.5);
  const std::size_t cut = std::min(granules * granule, parameter.count);
  const bool is_end_nearer =
      static_cast<double>(parameter.count) - element < element - static_cast<double>(cut);
  return is_end_nearer && element > static_cast<double>(cut) ? parameter.count : cut;
}

double bytes_of(const BucketParameter& parameter) {
  return static_cast<double>(parameter.count) * static_cast<double>(size_of(parameter.dtype));
}

}  // namespace

ShardPlan shard_plan(std::span<const BucketParameter> parameters, int ranks, std::size_t granule) {
  if (ranks < 1) throw InvalidArgument(str("shard_plan: ", ranks, " ranks"));
  if (granule == 0) throw InvalidArgument("shard_plan: a granule of no elements");
  double total = 0;
  for (const BucketParameter& parameter : parameters) total += bytes_of(parameter);
  ShardPlan plan = {
      .ranks = ranks, .shards = {}, .bytes = std::vector<std::size_t>(static_cast<std::size_t>(ranks))};
  double before = 0;  // in bytes
  int rank = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const BucketParameter& parameter = parameters[i];
    for (std::size_t begin = 0; begin < parameter.count;) {
      const bool is_last = rank == ranks - 1;
      const double goal = total / ranks * (rank + 1) - before;  // from the beginning of the parameter
      const std::size_t end = is_last ? parameter.count : std::max(begin, cut_at(parameter, goal, granule));
      if (end > begin) {
        plan.shards.push_back({.parameter = i, .offset = begin, .count = end - begin, .rank = rank});
        plan.bytes[static_cast<std::size_t>(rank)] += (end - begin) * size_of(parameter.dtype);
      }
      begin = end;
      if (begin < parameter.count) ++rank;
    }
    before += bytes_of(parameter);
  }
  return plan;
}

std::string to_string(const ShardPlan& plan) {
  std::string text;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    text += str("rank ", rank, ": ", plan.bytes[static_cast<std::size_t>(rank)], " bytes:");
    for (const ShardSpec& shard : plan.shards) {
      if (shard.rank != rank) continue;
      text += str(' ', shard.parameter, '[', shard.offset, ':', shard.offset + shard.count, ']');
    }
    text += '\n';
  }
  return text;
}

}  // namespace lockstep
