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
// Moving  A bucket moves to new memory when another tensor lives in one of its slots. It may be an earlier
//         .grad that the program keeps over zero_grad(), or a tensor that took a place meant for a gradient
//         (gradient_places.h). A bucket with a gradient missing is not being sent, so moving it is safe.
// Kept    A .grad that has another holder stays the tensor it is (gradient_holders.h). It is copied in and
//         copied back. Threads one at a time: the caller holds a lock.
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
  // `parameters` are distinct leaves that require gradients, equal on every rank of the group. The plan is
  // for their sizes.
  BucketStore(const NamedTensors& parameters, ProcessGroup group, BucketPlan plan);
  BucketStore(const BucketStore&) = delete;
  BucketStore& operator=(const BucketStore&) = delete;
  ~BucketStore() = default;

  std::size_t size() const { return slots_.size(); }  // number of parameters
  const GradientSlot& slot(std::size_t parameter) const { return slots_[parameter]; }
  const BucketPlan& plan() const { return plan_; }
  std::size_t buckets() const { return flats_.size(); }
  const at::Tensor& flat(std::size_t bucket) const { return flats_[bucket]; }
  const std::vector<std::size_t>& bucket_of() const { return bucket_of_; }  // by parameter
  std::size_t bytes() const;                                                // of all buckets
  // from new gradients, since construction
  std::uint64_t bytes_copied() const { return bytes_copied_; }

  // Moves buckets that still hold gradients which the program keeps. Then offers the slots to this thread's
  // next gradients until end_pass(). Parameter i is number i of `claims`. If several wrappers share a
  // parameter, its .grad stays outside of its bucket.
  void begin_pass(const ParameterClaims& claims);
  void end_pass();
  // Makes the bucket hold the parameter's .grad. `incoming` is its new part. The slot must have no refusal().
  void take(std::size_t parameter, const at::Tensor& incoming);
  // Makes the bucket hold the .grad of earlier backwards, or zeros. The .grad stays as it is until settle().
  void leave_out(std::size_t parameter);
  // Makes .grad undefined, or zero if it has another holder. Between passes, before those of a step.
  void drop_gradients();
  // Multiplies all buckets.
  void scale(double factor);
  // Makes .grad the part of the bucket. The .grad of a parameter that was left out stays as it is, unless
  // some rank used the parameter.
  void settle(std::size_t parameter, bool used_by_any_rank);
  // Lays out the same parameters in other buckets. Gradients keep their values. Between passes.
  void follow(BucketPlan plan);
  // The plan with the parameters' names, one line per bucket.
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
