#include "lockstep/parallel/tensor_parallel/mappings.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/parallel/tensor_parallel/group_holder.h"
#include "lockstep/parallel/tensor_parallel/region_steps.h"

namespace lockstep::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;

// A linear map: one step forward, its conjugate backward.
class Region : public torch::autograd::Function<Region> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, RegionStep forward_step,
                            RegionStep backward_step, const ProcessGroup& group) {
    context->saved_data["forward"] = static_cast<std::int64_t>(forward_step);
    context->saved_data["backward"] = static_cast<std::int64_t>(backward_step);
    save_group(*context, group);
    return region_step(forward_step, input, group);
  }

  static torch::autograd::variable_list backward(AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto step = [&](const char* name) {
      return static_cast<RegionStep>(context->saved_data[name].toInt());
    };
    const at::Tensor gradient =
        Region::apply(gradients[0], step("backward"), step("forward"), saved_group(*context));
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor map(const char* function, const at::Tensor& input, RegionStep forward, RegionStep backward,
               const ProcessGroup& group) {
  expect_step(function, forward, input, group);
  return group.size() == 1 ? input : Region::apply(input, forward, backward, group);
}

}  // namespace

at::Tensor copy_to_tensor_model_parallel_region(const at::Tensor& input, const ProcessGroup& group) {
  return map("copy_to_tensor_model_parallel_region", input, RegionStep::IDENTITY, RegionStep::REDUCE, group);
}

at::Tensor reduce_from_tensor_model_parallel_region(const at::Tensor& input, const ProcessGroup& group) {
  return map("reduce_from_tensor_model_parallel_region", input, RegionStep::REDUCE, RegionStep::IDENTITY,
             group);
}

at::Tensor scatter_to_tensor_model_parallel_region(const at::Tensor& input, const ProcessGroup& group) {
  return map("scatter_to_tensor_model_parallel_region", input, RegionStep::SPLIT_LAST,
             RegionStep::GATHER_LAST, group);
}

at::Tensor gather_from_tensor_model_parallel_region(const at::Tensor& input, const ProcessGroup& group) {
  return map("gather_from_tensor_model_parallel_region", input, RegionStep::GATHER_LAST,
             RegionStep::SPLIT_LAST, group);
}

at::Tensor scatter_to_sequence_parallel_region(const at::Tensor& input, const ProcessGroup& group) {
  return map("scatter_to_sequence_parallel_region", input, RegionStep::SPLIT_FIRST, RegionStep::GATHER_FIRST,
             group);
}

at::Tensor gather_from_sequence_parallel_region(const at::Tensor& input, const ProcessGroup& group,
                                                bool tensor_parallel_output_grad) {
  return map("gather_from_sequence_parallel_region", input, RegionStep::GATHER_FIRST,
             tensor_parallel_output_grad ? RegionStep::REDUCE_SCATTER_FIRST : RegionStep::SPLIT_FIRST, group);
}

at::Tensor reduce_scatter_to_sequence_parallel_region(const at::Tensor& input, const ProcessGroup& group) {
  return map("reduce_scatter_to_sequence_parallel_region", input, RegionStep::REDUCE_SCATTER_FIRST,
             RegionStep::GATHER_FIRST, group);
}

}  // namespace lockstep::tensor_parallel
