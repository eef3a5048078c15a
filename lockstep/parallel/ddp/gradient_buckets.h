// The gradients of one model in flat buckets: what has arrived in this backward, which buckets are complete, and their
// all-reduces. Knows nothing of passes, hooks and threads: the Reducer drives it and holds its lock.
//
//   GradientBuckets buckets(parameters, group, caps);
//   buckets.begin_pass();
//   buckets.add(2);                  // parameter 2 got its gradient
//   buckets.start_complete();        // all-reduces of complete buckets, in index order
//   ...
//   buckets.wait();
//   buckets.settle();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/bucket_plan.h"
#include "lockstep/parallel/ddp/gradient_slot.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// Counted since construction, on this rank.
struct DistributedDataParallelStats {
  std::uint64_t buckets = 0;          // in the plan
  std::uint64_t bucket_bytes = 0;     // of all buckets together
  std::uint64_t reductions = 0;       // backward passes whose gradients were averaged
  std::uint64_t buckets_started = 0;  // all-reduces
  std::uint64_t buckets_overlapped =
      0;  // of these, started while gradients of the same backward were still to come
  std::uint64_t bytes_copied = 0;  // from fresh gradients into buckets
};

// Throws InvalidArgument: who we are, then `what`.
[[noreturn]] void refuse(const ProcessGroup& group, const std::string& what);

class GradientBuckets {
 public:
  // `parameters`: distinct leaves that require gradients, equal on every rank of the group.
  GradientBuckets(const NamedTensors& parameters, const ProcessGroup& group, const BucketCaps& caps);

  std::size_t size() const { return parameters_.size(); }  // parameters
  // Throws when a parameter is not what it was at construction.
  void refuse_changed() const;
  bool any_requires_grad() const;
  bool all_arrived() const { return arrived_ == parameters_.size(); }
  // Why this backward must not bring parameter `index` a gradient (any more), if so.
  std::optional<std::string> too_late(std::size_t index) const;

  void begin_pass();
  // Parameter `index` got its gradient: takes it into its bucket. Throws for one that cannot travel there.
  void add(std::size_t index);
  // This backward brings it none: what earlier ones left is what this rank contributes. Does nothing after add().
  void leave_out(std::size_t index);
  // Names of the parameters that got no gradient since the last settle().
  std::vector<std::string> without_gradient() const;

  void start_complete();
  // After start_complete() has started all: which parameters did any rank use? One more all-reduce.
  void start_used_map();
  void wait();
  // Makes .grad of what was left out the average, unless no rank used it: then .grad stays what it was.
  void settle();

  const DistributedDataParallelStats& stats() const { return stats_; }

 private:
  struct Parameter {
    GradientSlot slot;
    std::size_t bucket;
    bool used = false;     // got a gradient since the last settle()
    bool arrived = false;  // got one in this backward
    bool counted = false;  // its bucket no longer waits for it
  };
  struct Bucket {
    at::Tensor flat;
    std::size_t missing = 0;  // gradients that have not been counted
    Work work;
  };

  void take(Parameter& parameter);
  void count(Parameter& parameter);

  const ProcessGroup group_;
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  std::size_t arrived_ = 0;      // parameters that got a gradient in this backward
  std::size_t next_bucket_ = 0;  // all before it have been started
  at::Tensor used_map_;          // while it is reduced
  Work used_map_work_;
  DistributedDataParallelStats stats_;
};

}  // namespace lockstep
