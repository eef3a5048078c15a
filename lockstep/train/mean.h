// Means of metrics over all ranks, for the reports of a training program. They are not for differentiation.
//
//   const double loss = dist::mean_across_ranks(local_loss).item<double>();  // each rank counts alike
//
//   dist::Mean accuracy;  // each sample counts alike
//   for (auto& batch : loader) accuracy.add(share_correct(batch), batch.target.size(0));
//   std::printf("%.4f\n", accuracy.across_ranks());  // the same on every rank
//
// Gradients    none flow: values are detached. (functional.h has collectives for gradients.)
// Collective   mean_across_ranks() and across_ranks(): every rank of the group. One small all_reduce each,
//              which blocks. So call them when something is reported, not in every step. InvalidArgument in a
//              process outside the group.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// Returns a new tensor of the metric's shape: the mean over the ranks, element by element. Integers and bool
// become float64. The metric itself does not change.
at::Tensor mean_across_ranks(const at::Tensor& metric, const ProcessGroup& group = world());
double mean_across_ranks(double metric, const ProcessGroup& group = world());

// A weighted mean of values added one by one, in float64.
class Mean {
 public:
  // Throws InvalidArgument for a negative weight.
  void add(double value, double weight = 1);
  void add(const at::Tensor& value, double weight = 1) { add(value.item<double>(), weight); }
  void reset() { *this = Mean(); }

  // NaN if no rank has added any weight. The first function is for this rank alone.
  double of_this_rank() const;
  double across_ranks(const ProcessGroup& group = world()) const;
  double weight() const { return weight_; }  // of this rank

  // "sum" and "weight" of this rank. A checkpoint's add_each_rank() saves it, for runs that resume within an
  // epoch.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& tensors);

 private:
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace lockstep
