// The gradients of one model in flat buckets: what has arrived in this backward, which buckets are complete, and their
// all-reduces. It has no thread and no lock: the Reducer drives it and holds its lock.
//
//   GradientBuckets buckets(parameters, group, caps);
//   buckets.begin_pass(claims);
//   buckets.add(2, incoming);        // parameter 2 got its gradient
//   buckets.start_complete();        // all-reduces of complete buckets, in index order
//   ...
//   buckets.wait();
//   buckets.settle();
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/stats.h"
#include "lockstep/parallel/gradients/bucket_plan.h"
#include "lockstep/parallel/gradients/gradient_holders.h"
#include "lockstep/parallel/gradients/gradient_places.h"
#include "lockstep/parallel/gradients/gradient_slot.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/gradients/parameter_claims.h"
#include "lockstep/parallel/gradients/sparse_gradient.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class GradientBuckets {
 public:
  // Distinct leaves that require gradients, equal on every rank of the group. The gradients of `sparse` lie in no bucket; they are
  // the parameters behind the dense ones.
  GradientBuckets(const NamedTensors& dense, const NamedTensors& sparse, ProcessGroup group,
                  const BucketCaps& caps);
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;
  ~GradientBuckets() = default;

  std::size_t size() const { return progress_.size(); }  // parameters
  const std::string& name(std::size_t index) const;
  // Throws when a parameter is not what it was at construction.
  void refuse_changed() const;
  bool any_requires_grad() const;
  // Names a parameter that requires no gradient any more, as a sentence, if there is one.
  std::optional<std::string> frozen_since() const;
  // All gradients that complete the buckets; false as long as the graph is to be learnt.
  bool all_arrived() const { return arrived_ == size(); }
  // A parameter may get any number of gradients in one backward, until learn_graph(): from then on as many as in this one.
  void expect_any_graph();
  void learn_graph();
  // Of those that get none in a learnt graph.
  void leave_out_unused();
  // Why this backward must not bring parameter `index` a gradient (any more), if so.
  std::optional<std::string> too_late(std::size_t index) const;

  // Offers the buckets' memory to the gradients that autograd makes next on this thread, until end_pass(). Buckets of which
  // somebody has kept gradients over zero_grad() move before. `claims` says which parameters are shared with other wrappers.
  void begin_pass(const ParameterClaims& claims);
  void end_pass();
  // Parameter `index` got its gradient, of which `incoming` is what is new: takes it into its bucket. Throws for one that cannot
  // travel there.
  void add(std::size_t index, const at::Tensor& incoming);
  // This backward brings it none: what earlier ones left is what this rank contributes. Does nothing after add().
  void leave_out(std::size_t index);
  // Makes all .grad undefined, or zero where somebody else holds it.
  void drop_gradients();
  // From now on the hook reduces the buckets. Between backward passes.
  void set_hook(std::shared_ptr<CommHook> hook);
  const std::shared_ptr<CommHook>& hook() const { return hook_; }  // null: none

  // Between leave_out() of all and wait(): tells all ranks in which order rank 0's gradients arrived in this backward.
  void start_order();
  // After settle(): makes the buckets that suit that order, the same on every rank. Gradients keep their values.
  void follow_order();
  std::string table() const;  // the plan, one line per bucket
  // For whom its calls are made (comm/purpose.h): the model's name, and the mark of this pass.
  void act_for(const std::string& model) { model_ = model; }
  void set_mark(std::int32_t mark) { mark_ = mark; }

  // Names of the parameters that got no gradient since the last settle(), or not as many as the learnt graph has.
  std::vector<std::string> without_gradient() const;

  void start_complete();
  // After start_complete() has started all: which parameters did any rank use? One more all-reduce.
  void start_used_map();
  void wait();  // and reduces sparse gradients
  // Multiplies the averages. Between wait() and settle().
  void scale(double factor);
  // Makes .grad of what was left out the average, unless no rank used it: then .grad stays what it was.
  void settle();

  DistributedDataParallelStats stats() const;
  StepClock& clock() { return clock_; }

 private:
  struct Dense {
    GradientSlot slot;
    std::size_t bucket;
  };
  struct Progress {          // of a parameter
    unsigned expected = 1;   // gradients that make it complete
    unsigned gradients = 0;  // in this backward
    bool used = false;       // got a gradient since the last settle()
    bool counted = false;    // nothing waits for it
  };
  struct Bucket {
    at::Tensor flat;
    std::size_t missing = 0;                         // gradients that have not been counted
    Work work;                                       // without a hook
    std::shared_ptr<const GradBucket::Parts> parts;  // with a hook
  };

  void rebuild(BucketPlan plan);
  void describe_parts();
  void make_room(const Dense& parameter);
  void move(std::size_t bucket);
  bool is_held(const GradientSlot& slot, const at::Tensor& incoming);
  void take(std::size_t index, const at::Tensor& incoming);
  void count(std::size_t index);
  bool is_dense(std::size_t index) const { return index < dense_.size(); }
  const at::Tensor& tensor(std::size_t index) const;
  void reduce(std::size_t index, const at::Tensor& flat);
  void end_step();
  const std::string& bucket_name(std::size_t index) {
    while (bucket_names_.size() <= index)
      bucket_names_.push_back(model_ + (model_.empty() ? "" : ", ") + "bucket " +
                              std::to_string(bucket_names_.size()));
    return bucket_names_[index];
  }

  const ProcessGroup group_;
  const BucketCaps caps_;
  std::vector<Dense> dense_;
  std::vector<SparseGradient> sparse_;
  std::vector<Progress> progress_;  // of dense_, then of sparse_
  BucketPlan plan_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> arrivals_;  // in this backward
  bool graph_is_learnt_ = false;
  std::size_t arrived_ = 0;      // parameters that are complete in this backward
  std::size_t next_bucket_ = 0;  // all before it have been started
  GradientPlaces places_;
  GradientHolders holders_;
  std::shared_ptr<CommHook> hook_;
  std::optional<ProcessGroup> hook_group_;  // group_, counting what the hook sends
  std::shared_ptr<std::atomic<std::uint64_t>> hook_sent_;
  std::vector<HookStep> steps_;  // of the hook, one per bucket started
  at::Tensor used_map_;          // which parameters any rank used, if asked for; that of a learnt graph stays
  Work used_map_work_;
  std::size_t sparse_bytes_ = 0;  // contributed in this backward
  at::Tensor order_;              // while it is broadcast
  Work order_work_;
  std::string model_;
  std::vector<std::string> bucket_names_;  // "SimpleCNN, bucket 1", as far as they were needed
  std::int32_t mark_ = 0;
  StepClock clock_;
  DistributedDataParallelStats stats_;
  struct {
    std::uint64_t copied = 0;
    std::uint64_t sent = 0;
  } earlier_;  // bytes, up to the end of the last step
};

}  // namespace lockstep
