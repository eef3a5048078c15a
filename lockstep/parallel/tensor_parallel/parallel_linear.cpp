#include "lockstep/parallel/tensor_parallel/parallel_linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/tensor_parallel/exchange_memory.h"
#include "lockstep/parallel/tensor_parallel/group_holder.h"
#include "lockstep/parallel/tensor_parallel/region_steps.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep::tensor_parallel {
namespace {

using Tensors = torch::autograd::variable_list;
using torch::autograd::AutogradContext;

at::Tensor rows_of(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

std::vector<std::int64_t> with_last(at::IntArrayRef sizes, std::int64_t last) {
  std::vector<std::int64_t> result = sizes.vec();
  result.back() = last;
  return result;
}

// [in, out], whatever the layout.
at::Tensor in_out(const at::Tensor& weight, WeightLayout layout) {
  return layout == WeightLayout::IN_OUT ? weight : weight.t();
}

// What both functions save besides tensors.
void save(AutogradContext& context, const ParallelLinear& linear, bool has_bias) {
  save_group(context, linear.group);
  context.saved_data["sequence_parallel"] = linear.sequence_parallel;
  context.saved_data["layout"] = static_cast<std::int64_t>(linear.layout);
  context.saved_data["has_bias"] = has_bias;
}

ParallelLinear saved(AutogradContext& context) {
  if (at::GradMode::is_enabled())
    Wrapper{"parallel_linear"}.refuse(
        "backward(create_graph = true): there is no derivative of its gradient");
  return {.group = saved_group(context),
          .sequence_parallel = context.saved_data["sequence_parallel"].toBool(),
          .layout = static_cast<WeightLayout>(context.saved_data["layout"].toInt())};
}

// The gradients of weight and bias, for the functions' arguments 1 and 2.
void of_parameters(AutogradContext& context, const at::Tensor& gradient_rows, const at::Tensor& input,
                   WeightLayout layout, Tensors& gradients) {
  if (context.needs_input_grad(1)) {
    const at::Tensor input_rows = rows_of(input);
    gradients[1] = layout == WeightLayout::IN_OUT ? at::mm(input_rows.t(), gradient_rows)
                                                  : at::mm(gradient_rows.t(), input_rows);
  }
  if (context.saved_data["has_bias"].toBool() && context.needs_input_grad(2))
    gradients[2] = gradient_rows.sum(0);
}

class ColumnLinear : public torch::autograd::Function<ColumnLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const ParallelLinear& linear) {
    context->save_for_backward({input, weight});
    save(*context, linear, bias.has_value());
    const at::Tensor whole =
        linear.sequence_parallel ? region_step(RegionStep::GATHER_FIRST, input, linear.group) : input;
    const at::Tensor matrix = in_out(weight, linear.layout);
    const at::Tensor rows = bias ? at::addmm(*bias, rows_of(whole), matrix) : at::mm(rows_of(whole), matrix);
    return rows.view(with_last(whole.sizes(), matrix.size(1)));
  }

  static Tensors backward(AutogradContext* context, const Tensors& incoming) {
    const ParallelLinear linear = saved(*context);
    const Tensors variables = context->get_saved_variables();
    const at::Tensor& weight = variables[1];
    const at::Tensor gradient = rows_of(incoming[0]);
    Tensors gradients(4);
    at::Tensor whole = variables[0];
    Work gathered;
    if (linear.sequence_parallel && context->needs_input_grad(1))
      gathered = start_gather(whole, linear.group);
    Work exchanged;
    if (context->needs_input_grad(0)) {
      const at::Tensor matrix = in_out(weight, linear.layout);
      at::Tensor partial =
          exchange_empty({gradient.size(0), matrix.size(0)}, gradient.options(), linear.group);
      at::mm_out(partial, gradient, matrix.t());
      gradients[0] = start_exchange(partial, variables[0].sizes(), linear, exchanged);
    }
    gathered.wait();
    of_parameters(*context, gradient, whole, linear.layout, gradients);
    exchanged.wait();
    return gradients;
  }

 private:
  // Replaces a part by the whole, which is complete when the work is.
  static Work start_gather(at::Tensor& part, const ProcessGroup& group) {
    const Acting acting(Purpose::TENSOR_PARALLEL);
    std::vector<std::int64_t> sizes = part.sizes().vec();
    sizes[0] *= group.size();
    const at::Tensor whole = at::empty(sizes, part.options());
    Work work = all_gather_into_tensor(whole, part.contiguous(), group, /*async_op=*/true);
    part = whole;
    return work;
  }

  // The gradient of the input, complete when the work is.
  static at::Tensor start_exchange(const at::Tensor& partial, at::IntArrayRef sizes,
                                   const ParallelLinear& linear, Work& work) {
    const Acting acting(Purpose::TENSOR_PARALLEL);
    if (!linear.sequence_parallel) {
      work = all_reduce(partial, ReduceOp::SUM, linear.group, /*async_op=*/true);
      return partial.view(sizes);
    }
    at::Tensor part = at::empty(sizes, partial.options());
    work = reduce_scatter_tensor(part, partial, ReduceOp::SUM, linear.group, /*async_op=*/true);
    return part;
  }
};

class RowLinear : public torch::autograd::Function<RowLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const ParallelLinear& linear) {
    context->save_for_backward({input, weight});
    save(*context, linear, bias.has_value());
    const at::Tensor rows = rows_of(input);
    const at::Tensor matrix = in_out(weight, linear.layout);
    at::Tensor partial = exchange_empty({rows.size(0), matrix.size(1)}, input.options(), linear.group);
    if (bias && linear.group.rank() == 0) {
      at::addmm_out(partial, *bias, rows, matrix);
    } else {
      at::mm_out(partial, rows, matrix);
    }
    partial = partial.view(with_last(input.sizes(), matrix.size(1)));
    if (linear.sequence_parallel) {
      expect_step("row_parallel_linear", RegionStep::REDUCE_SCATTER_FIRST, partial, linear.group);
      return region_step(RegionStep::REDUCE_SCATTER_FIRST, partial, linear.group);
    }
    const Acting acting(Purpose::TENSOR_PARALLEL);
    all_reduce(partial, ReduceOp::SUM, linear.group);
    return partial;
  }

  static Tensors backward(AutogradContext* context, const Tensors& incoming) {
    const ParallelLinear linear = saved(*context);
    const Tensors variables = context->get_saved_variables();
    const at::Tensor gradient =
        rows_of(linear.sequence_parallel ? region_step(RegionStep::GATHER_FIRST, incoming[0], linear.group)
                                         : incoming[0]);
    Tensors gradients(4);
    if (context->needs_input_grad(0))
      gradients[0] = at::mm(gradient, in_out(variables[1], linear.layout).t()).view(variables[0].sizes());
    of_parameters(*context, gradient, variables[0], linear.layout, gradients);
    return gradients;
  }
};

// The tensors of one call, in the dtype of an autocast region.
struct Operands {
  at::Tensor input, weight;
  std::optional<at::Tensor> bias;

  Operands(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b)
      : input(cast(x)), weight(cast(w)), bias(b.defined() ? std::optional(cast(b)) : std::nullopt) {}

  static at::Tensor cast(const at::Tensor& tensor) {
    const at::DeviceType device = tensor.device().type();
    if (!at::autocast::is_autocast_enabled(device)) return tensor;
    return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
  }
};

at::Tensor plain_linear(const Operands& operands, WeightLayout layout) {
  const at::Tensor out_in = layout == WeightLayout::IN_OUT ? operands.weight.t() : operands.weight;
  return at::linear(operands.input, out_in, operands.bias);
}

void expect_input(const char* function, const at::Tensor& input, const at::Tensor& weight,
                  const ParallelLinear& linear) {
  expect_step(function, RegionStep::REDUCE, input, linear.group);
  const std::int64_t features = in_out(weight, linear.layout).size(0);
  if (input.dim() < 2 || input.size(-1) != features)
    Wrapper{function}.refuse(linear.group, lockstep::str("the input has sizes ", input.sizes(),
                                                         "; expected [..., ", features, "]"));
}

// Products into memory that is given do not take part in autocast.
c10::DispatchKeySet autocast_of(const at::Tensor& tensor) {
  return c10::DispatchKeySet(
      at::autocast::get_autocast_dispatch_key_from_device_type(tensor.device().type()));
}

}  // namespace

at::Tensor column_parallel_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                  const ParallelLinear& linear) {
  expect_input("column_parallel_linear", input, weight, linear);
  const Operands operands(input, weight, bias);
  if (linear.group.size() == 1) return plain_linear(operands, linear.layout);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(autocast_of(input));
  return ColumnLinear::apply(operands.input, operands.weight, operands.bias, linear);
}

at::Tensor row_parallel_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                               const ParallelLinear& linear) {
  expect_input("row_parallel_linear", input, weight, linear);
  const Operands operands(input, weight, bias);
  if (linear.group.size() == 1) return plain_linear(operands, linear.layout);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(autocast_of(input));
  return RowLinear::apply(operands.input, operands.weight, operands.bias, linear);
}

}  // namespace lockstep::tensor_parallel
