// RegionStep: what a mapping (mappings.h) does in forward or in backward, without autograd. The layers of
// this room make their fused forward and backward of the same steps.
//
//   const at::Tensor whole = region_step(RegionStep::GATHER_FIRST, part, group);
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "lockstep/comm/process_group.h"

namespace lockstep::tensor_parallel {

enum class RegionStep {
  IDENTITY,
  REDUCE,                // all_reduce(SUM), out of place
  SPLIT_LAST,            // this rank's part of the last dimension
  GATHER_LAST,           // all ranks' parts, side by side along the last dimension
  SPLIT_FIRST,           // the same of dimension 0
  GATHER_FIRST,          //
  REDUCE_SCATTER_FIRST,  // this rank's part of the sum, along dimension 0
};

// Blocks until the result is complete. It may lie in exchange memory.
at::Tensor region_step(RegionStep step, const at::Tensor& tensor, const ProcessGroup& group);

// Throws InvalidArgument that names `function` unless the ranks of `group`, of which this process is one, can
// take the step.
void expect_step(std::string_view function, RegionStep step, const at::Tensor& tensor,
                 const ProcessGroup& group);

}  // namespace lockstep::tensor_parallel
