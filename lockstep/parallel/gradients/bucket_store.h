// BucketStore: the memory of a model's dense gradients. Each bucket is one flat tensor of the group's memory,
// each gradient a slot in it. The store moves gradients into their slots and never communicates.
//
//   const auto order = reverse_order(parameters.size());
//   BucketStore store(parameters, group, bucket_plan(sizes_of(parameters), order, caps));
//   store.begin_pass(claims);               // offers the slots to the gradients that autograd makes next
//   store.take(2, incoming);                // parameter 2 got its gradient: it lies in its bucket now
//   store.leave_out(0);                     // parameter 0 got none
//   store.end_pass();
//   all_reduce(store.flat(0), ...);
//   store.settle(2, true);                  // .grad is the average
//
// Moving  A bucket moves to new memory when something else lives in one of its slots: an earlier .grad that
//         the program keeps over zero_grad(), or a tensor that took a place meant for a gradient
//         (gradient_places.h). A bucket with a gradient missing is not in flight, so moving it is safe.
// Kept    A .grad that another holder has stays the tensor it is (gradient_holders.h): it is copied in and
//         copied back.
// Threads one at a time: the caller holds a lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/gradients/bucket_plan.h"
#include "lockstep/parallel/gradients/gradient_holders.h"
#include "lockstep/parallel/gradients/gradient_places.h"
#include "lockstep/parallel/gradients/gradient_slot.h"
#include "lockstep/parallel/gradients/parameter_claims.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// The sizes that bucket_plan() takes, all in optimiser group 0.
std::vector<BucketParameter> sizes_of(const NamedTensors& parameters);

class BucketStore {
 public:
  // Distinct leaves that require gradients, equal on every rank of the group; the plan is of their sizes.
  BucketStore(const NamedTensors& parameters, ProcessGroup group, BucketPlan plan);
  BucketStore(const BucketStore&) = delete;
  BucketStore& operator=(const BucketStore&) = delete;
  ~BucketStore() = default;

  std::size_t size() const { return slots_.size(); }  // parameters
  const GradientSlot& slot(std::size_t parameter) const { return slots_[parameter]; }
  const BucketPlan& plan() const { return plan_; }
  std::size_t buckets() const { return flats_.size(); }
  const at::Tensor& flat(std::size_t bucket) const { return flats_[bucket]; }
  const std::vector<std::size_t>& bucket_of() const { return bucket_of_; }  // by parameter
  std::size_t bytes() const;                                                // of all buckets
  std::uint64_t bytes_copied() const { return bytes_copied_; }              // from fresh gradients, ever

  // Moves buckets of which the program keeps gradients, then offers the slots to this thread's next gradients
  // until end_pass(). Parameter i is number i of `claims`; the .grad of one that several wrappers share stays
  // outside of its bucket.
  void begin_pass(const ParameterClaims& claims);
  void end_pass();
  // Makes the bucket hold the parameter's .grad, of which `incoming` is new. Needs a slot without refusal().
  void take(std::size_t parameter, const at::Tensor& incoming);
  // The bucket holds the .grad of earlier backwards, else zeros. The .grad stays as it is until settle().
  void leave_out(std::size_t parameter);
  // Makes .grad undefined, or zero where another holder has it. Between passes, before those of a step.
  void drop_gradients();
  // Multiplies all buckets.
  void scale(double factor);
  // Makes .grad the part of the bucket. That of a parameter left out stays unless a rank used it.
  void settle(std::size_t parameter, bool used_by_any_rank);
  // Lays the same parameters out in other buckets. Gradients keep their values. Between passes.
  void follow(BucketPlan plan);
  // The plan with the names of parameters, one line per bucket.
  std::string table() const;

 private:
  at::Tensor make_flat(const BucketSpec& bucket, const at::Tensor& like) const;
  void make_room(std::size_t parameter);
  void move(std::size_t bucket);
  bool is_held(std::size_t parameter, const at::Tensor& incoming);

  const ProcessGroup group_;
  BucketPlan plan_;
  std::vector<at::Tensor> flats_;
  std::vector<GradientSlot> slots_;
  std::vector<std::size_t> bucket_of_;
  GradientPlaces places_;
  GradientHolders holders_;
  std::uint64_t bytes_copied_ = 0;
};

}  // namespace lockstep
