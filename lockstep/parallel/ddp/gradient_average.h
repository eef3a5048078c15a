// GradientAverage: makes the gradients of a model their average over the ranks of a group. Complete buckets
// start in index order during backward. At its end the average waits for all buckets and for the exchange.
//
//   GradientAverage average(gradients, group, caps, "SimpleCNN");
//   average.begin_pass(mark);
//   ...                                       // gradients.add(2, incoming);
//   average.start_complete();                 // after each
//   average.start_exchange(false, true);      // all buckets have been started
//   average.wait();
//   average.settle();                         // .grad of all is the average
//
// Order   Rank 0 tells all ranks the order in which its gradients arrived. After that settle() lays out the
//         buckets to suit it.
// Threads one at a time: the Reducer calls it and holds its lock, except in wait().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/stats.h"
#include "lockstep/parallel/gradients/bucket_reduction.h"
#include "lockstep/parallel/gradients/model_gradients.h"
#include "lockstep/parallel/gradients/pass_exchange.h"

namespace lockstep {

class GradientAverage {
 public:
  // The gradients outlive it. `model` is the model's name in messages; it may be empty.
  GradientAverage(ModelGradients& gradients, const ProcessGroup& group, const BucketCaps& caps,
                  std::string model);
  GradientAverage(const GradientAverage&) = delete;
  GradientAverage& operator=(const GradientAverage&) = delete;
  ~GradientAverage() = default;

  // Between backward passes.
  void set_hook(std::shared_ptr<CommHook> hook) { reduction_.set_hook(std::move(hook)); }
  std::shared_ptr<CommHook> hook() const { return reduction_.hook(); }  // null if there is none

  // The mark travels with each call of this pass (comm/purpose.h).
  void begin_pass(std::int32_t mark) { mark_ = mark; }
  std::size_t started() const { return reduction_.started(); }  // number of buckets
  void start_complete();
  // Called after start_complete() has started all buckets. Sends which parameters were used here, and the
  // order of the gradients.
  void start_exchange(bool used, bool order);
  void wait();                                             // also reduces sparse gradients
  void scale(double factor) { gradients_.scale(factor); }  // between wait() and settle()
  void settle();
  // called in place of settle() in every turn of a virtual rank but the last
  void end_turn() { gradients_.end_turn(); }

  std::string table() const;  // the plan, one line per bucket
  DistributedDataParallelStats stats() const;
  StepClock& clock() { return clock_; }

 private:
  struct Counts {
    DistributedDataParallelStats stats;  // without the counts of the store and the reduction
    std::uint64_t sparse_bytes = 0;      // bytes of sparse gradients sent in this step
    std::uint64_t earlier_copied = 0;    // bytes copied up to the end of the last step
    std::uint64_t earlier_sent = 0;
  };
  void follow_order();

  ModelGradients& gradients_;
  const ProcessGroup group_;
  const BucketCaps caps_;
  const std::string model_;
  std::int32_t mark_ = 0;
  BucketReduction reduction_;
  PassExchange exchange_;
  StepClock clock_;
  Counts counts_;
};

}  // namespace lockstep
