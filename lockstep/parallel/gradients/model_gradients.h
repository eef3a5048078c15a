// ModelGradients: the gradients of one model, and which of them have arrived in this backward. Dense
// gradients lie in the buckets of a store, sparse ones beside them. Parameters are numbered: dense ones
// first, then sparse ones.
//
//   ModelGradients gradients(DDP_WRAPPER, group, dense, sparse, bucket_plan(...));
//   gradients.begin_pass(claims);
//   gradients.add(2, incoming);                     // parameter 2 got its gradient
//   gradients.leave_out(0);                         // parameter 0 gets none in this backward
//   gradients.arrivals().is_complete(1);            // bucket 1 can be reduced
//   gradients.end_pass();
//   gradients.settle(exchange);                     // .grad of all is the average
//
// It never communicates and has no lock. Its wrapper does both.
// Fails  InvalidArgument in the wrapper's name: a gradient that cannot travel, a parameter that was changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/gradients/bucket_plan.h"
#include "lockstep/parallel/gradients/bucket_store.h"
#include "lockstep/parallel/gradients/gradient_arrivals.h"
#include "lockstep/parallel/gradients/parameter_claims.h"
#include "lockstep/parallel/gradients/pass_exchange.h"
#include "lockstep/parallel/gradients/sparse_gradient.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class ModelGradients {
 public:
  // `dense` and `sparse` are distinct leaves that require gradients, equal on every rank of the group. The
  // plan is for the dense ones.
  ModelGradients(const Wrapper& wrapper, const ProcessGroup& group, const NamedTensors& dense,
                 const NamedTensors& sparse, BucketPlan plan);
  ModelGradients(const ModelGradients&) = delete;
  ModelGradients& operator=(const ModelGradients&) = delete;
  ~ModelGradients() = default;

  std::size_t size() const { return dense_.size() + sparse_.size(); }  // number of parameters
  const std::string& name(std::size_t index) const;
  const BucketStore& store() const { return dense_; }
  std::vector<SparseGradient>& sparse() { return sparse_; }
  GradientArrivals& arrivals() { return arrivals_; }
  const GradientArrivals& arrivals() const { return arrivals_; }

  // Throws when a parameter has changed since construction.
  void refuse_changed() const;
  bool any_requires_grad() const;
  // Returns a sentence about a parameter that no longer requires a gradient, if there is one.
  std::optional<std::string> frozen_since() const;
  // Returns, as a sentence, why this backward must not bring the parameter a (further) gradient. `started` is
  // the number of buckets that have been started.
  std::optional<std::string> too_late(std::size_t index, std::size_t started) const;
  // Names of the parameters without a gradient since the last settle(), or with fewer than the learnt graph
  // has.
  std::vector<std::string> without_gradient() const;

  void begin_pass(const ParameterClaims& claims);
  void end_pass();
  void add(std::size_t index, const at::Tensor& incoming);
  // This rank contributes the .grad of earlier backwards. Does nothing if the gradient has counted already.
  void leave_out(std::size_t index);
  void leave_out_unused();  // for parameters outside of a learnt graph
  // Makes all .grad undefined, or zero if it has another holder.
  void drop_gradients();
  // Multiplies the averages. Before settle().
  void scale(double factor);
  // Makes .grad the average. The .grad of a parameter that was left out stays unless a rank used it.
  void settle(const PassExchange& exchange);
  // Called in place of settle() if the buckets hold no average yet, but were added to a virtual rank's sums.
  void end_turn();
  // Lays out the dense gradients in other buckets. Between passes.
  void follow(BucketPlan plan);

 private:
  bool is_dense(std::size_t index) const { return index < dense_.size(); }
  const at::Tensor& tensor(std::size_t index) const;
  void take(std::size_t index, const at::Tensor& incoming);

  const Wrapper wrapper_;
  const ProcessGroup group_;
  BucketStore dense_;
  std::vector<SparseGradient> sparse_;
  GradientArrivals arrivals_;
};

}  // namespace lockstep
