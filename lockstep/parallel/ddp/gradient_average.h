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
// Order  Rank 0 tells all ranks in which order its gradients came; after that settle() lays the buckets out
//        to suit it.
// Threads one at a time: the Reducer drives it and holds its lock, except in wait().
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
  // The gradients outlive it. `model` is the model's name in messages, or empty.
  GradientAverage(ModelGradients& gradients, const ProcessGroup& group, const BucketCaps& caps,
                  std::string model);
  GradientAverage(const GradientAverage&) = delete;
  GradientAverage& operator=(const GradientAverage&) = delete;
  ~GradientAverage() = default;

  // Between backward passes.
  void set_hook(std::shared_ptr<CommHook> hook) { reduction_.set_hook(std::move(hook)); }
  std::shared_ptr<CommHook> hook() const { return reduction_.hook(); }  // null: none

  // The mark travels with each call of this pass (comm/purpose.h).
  void begin_pass(std::int32_t mark) { mark_ = mark; }
  std::size_t started() const { return reduction_.started(); }  // buckets
  void start_complete();
  // After start_complete() has started all: tells which parameters were used here, and in which order
  // gradients came.
  void start_exchange(bool used, bool order);
  void wait();                                             // and reduces sparse gradients
  void scale(double factor) { gradients_.scale(factor); }  // between wait() and settle()
  void settle();
  void end_turn() { gradients_.end_turn(); }  // in place of settle(), but in a virtual rank's last turn

  std::string table() const;  // the plan, one line per bucket
  DistributedDataParallelStats stats() const;
  StepClock& clock() { return clock_; }

 private:
  struct Counts {
    DistributedDataParallelStats stats;  // without the counts of the store and the reduction
    std::uint64_t sparse_bytes = 0;      // sent in this step
    std::uint64_t earlier_copied = 0;    // bytes, up to the end of the last step
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
