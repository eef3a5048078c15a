// pipeline_stash, pipeline_pop: a skip connection. A tensor of one stage of a pipeline that a later stage
// uses, as in a U-Net, goes past the stages between.
//
//   at::Tensor forward(const at::Tensor& x) {         // in a module of stage 0
//     dist::pipeline_stash("skip1", x);
//     return down(x);
//   }
//   at::Tensor up(const at::Tensor& x) {              // in a module of stage 3
//     return x + dist::pipeline_pop("skip1");
//   }
//
// Each name is stashed once and popped once in a forward, in this order. The gradient of the popped tensor
// flows back to the stashed one. Both may be in one stage, and several modules may stash under other names.
//
// Travels     with the activations, through the stages between: on each way once more there and back.
// Alone       Outside a pipeline the functions do the same within one thread, so a model runs unchanged in
//             one process.
// Tensors     of any dtype; only those that require a gradient get one.
// Throws      InvalidArgument: a name that is stashed and not popped yet, or that nobody stashed. The end of
//             a pipeline's last stage refuses names that nobody popped.
// Source      the @skippable modules of torchgpipe.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

void pipeline_stash(const std::string& name, const at::Tensor& tensor);
at::Tensor pipeline_pop(const std::string& name);

// The tensors of this thread that were stashed and not popped, for the time of one stage's forward.
class PipelineSkipScope {
 public:
  explicit PipelineSkipScope(NamedTensors arrived);
  ~PipelineSkipScope();
  PipelineSkipScope(const PipelineSkipScope&) = delete;
  PipelineSkipScope& operator=(const PipelineSkipScope&) = delete;

  // In the order of stashing.
  const NamedTensors& left() const;

 private:
  NamedTensors before_;
};

}  // namespace lockstep
