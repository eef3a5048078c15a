// What DistributedDataParallel counts and times: ddp.stats().
//
//   const auto stats = ddp.stats();
//   const double hidden = 1 - stats.last_step.exposed / stats.last_step.communication;
//
// Cost  two readings of the clock per bucket and five per step, under locks that are held anyway.
#pragma once

#include <cstdint>

#include "lockstep/parallel/ddp/step_times.h"

namespace lockstep {

// Of this rank. All but those of the last step count since construction.
struct DistributedDataParallelStats {
  StepTimes last_step;  // seconds, of the last one that was averaged
  std::uint64_t last_step_bytes_copied = 0;
  std::uint64_t last_step_bytes_sent = 0;
  std::uint64_t buckets = 0;   // in the plan
  std::uint64_t rebuilds = 0;  // of the buckets, in the order in which gradients really arrived: at most one
  std::uint64_t bucket_bytes = 0;     // of all buckets together
  std::uint64_t reductions = 0;       // backward passes whose gradients were averaged
  std::uint64_t buckets_started = 0;  // all-reduces
  std::uint64_t buckets_overlapped =
      0;  // of these, started while gradients of the same backward were still to come
  std::uint64_t bytes_copied = 0;  // from fresh gradients into buckets, also of passes that are not averaged
  // Contributed to averages of gradients; measured also with a communication hook.
  std::uint64_t bytes_sent = 0;
};

}  // namespace lockstep
