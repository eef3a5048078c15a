// The counts and times of a DistributedDataParallel: ddp.stats().
//
//   const auto stats = ddp.stats();
//   const double hidden = 1 - stats.last_step.exposed / stats.last_step.communication;
//
// Cost  two readings of the clock per bucket and five per step, under locks that are held anyway.
#pragma once

#include <cstdint>

#include "lockstep/parallel/ddp/step_times.h"

namespace lockstep {

// Those of this rank. All but last_step count since construction.
struct DistributedDataParallelStats {
  StepTimes last_step;  // in seconds, of the last averaged step
  std::uint64_t last_step_bytes_copied = 0;
  std::uint64_t last_step_bytes_sent = 0;
  std::uint64_t buckets = 0;   // in the plan
  std::uint64_t rebuilds = 0;  // of the buckets, to suit the order in which gradients arrived: at most one
  std::uint64_t bucket_bytes = 0;     // of all buckets together
  std::uint64_t reductions = 0;       // backward passes whose gradients were averaged
  std::uint64_t buckets_started = 0;  // number of all-reduces
  // of these, buckets started while gradients of the same backward were still missing
  std::uint64_t buckets_overlapped = 0;
  std::uint64_t bytes_copied = 0;  // from new gradients into buckets, also in passes that are not averaged
  // Contributed to averages of gradients. Measured also with a communication hook.
  std::uint64_t bytes_sent = 0;
};

}  // namespace lockstep
