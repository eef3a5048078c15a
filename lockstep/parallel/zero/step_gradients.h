// StepGradients: the gradients of a step, between the backward passes of this rank and the averages that it
// steps with. Two forms:
//
//   LocalGradients      stay this rank's own until the step, in buckets of the whole model. The step averages
//   ScatteredGradients  are averaged during backward, bucket by bucket. A rank keeps its own parts alone
//
//   loss.backward();
//   const std::vector<bool> used = gradients.complete();
//   gradients.flat(piece.bucket);          // where a ShardLayout says that this rank's part lies
//   gradients.drop();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/gradients/bucket_store.h"

namespace lockstep {

class StepGradients {
 public:
  // Says why a backward must not add gradients now, if so.
  using Refusal = std::function<std::optional<std::string>()>;

  StepGradients() = default;
  StepGradients(const StepGradients&) = delete;
  StepGradients& operator=(const StepGradients&) = delete;
  virtual ~StepGradients() = default;

  // A parameter that another live wrapper has, too.
  virtual std::optional<std::size_t> first_shared() const = 0;
  // Before a forward: follows gradient accumulators that libtorch has made since. Throws InvalidArgument for
  // a parameter that is not what it was, and where a backward was left.
  virtual void renew() = 0;
  // Before a step: all gradients lie in their flats. By parameter: whether this rank had one.
  virtual std::vector<bool> complete() = 0;
  // .grad of all is undefined, and what was added up counts no more.
  virtual void drop() = 0;
  // Of the pieces of the step's ShardLayout.
  virtual const at::Tensor& flat(std::size_t bucket) const = 0;
  // The buckets that the step averages; null where backward has done so.
  virtual const BucketStore* local() const = 0;
  virtual std::size_t bytes() const = 0;
};

}  // namespace lockstep
