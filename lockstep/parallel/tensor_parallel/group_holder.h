// A group among what an autograd function saves for its backward.
//
//   save_group(*context, group);                              // in forward
//   const ProcessGroup& group = saved_group(*context);        // in backward
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "lockstep/comm/process_group.h"

namespace lockstep::tensor_parallel {

struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(ProcessGroup of) : group(std::move(of)) {}
  ProcessGroup group;
};

inline void save_group(torch::autograd::AutogradContext& context, const ProcessGroup& group) {
  context.saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group));
}

inline ProcessGroup saved_group(torch::autograd::AutogradContext& context) {
  return c10::static_intrusive_pointer_cast<GroupHolder>(context.saved_data["group"].toCapsule())->group;
}

}  // namespace lockstep::tensor_parallel
