#include "lockstep/tensor/functional.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <functional>
#include <utility>

#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep::functional {
namespace {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;

// A collective as a linear map from this rank's inputs to its results, and the map that carries gradients
// back. The second map is made of this file's functions, so it has gradients itself.
struct Map : torch::CustomClassHolder {
  std::function<Tensors(const Tensors& inputs)> forward;
  std::function<Tensors(const Tensors& gradients)> backward;
};

class LinearMap : public torch::autograd::Function<LinearMap> {
 public:
  static Tensors forward(AutogradContext* context, at::TensorList inputs,
                         const c10::intrusive_ptr<Map>& map) {
    context->saved_data["map"] = c10::IValue::make_capsule(map);
    return map->forward(inputs.vec());
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const auto map = c10::static_intrusive_pointer_cast<Map>(context->saved_data["map"].toCapsule());
    Tensors result = map->backward(gradients);
    result.emplace_back();  // for `map`
    return result;
  }
};

Tensors apply(const Tensors& inputs, std::function<Tensors(const Tensors&)> forward,
              std::function<Tensors(const Tensors&)> backward) {
  auto map = c10::make_intrusive<Map>();
  map->forward = std::move(forward);
  map->backward = std::move(backward);
  return LinearMap::apply(at::TensorList(inputs), map);  // a plain vector would not count as variables
}

// The facts about a tensor that are needed to make others like it.
struct Shape {
  std::vector<std::int64_t> sizes;
  at::TensorOptions options;

  explicit Shape(const at::Tensor& tensor) : sizes(tensor.sizes().vec()), options(tensor.options()) {}
  at::Tensor empty() const { return at::empty(sizes, options); }
  at::Tensor zeros() const { return at::zeros(sizes, options); }
};

Tensors empty_like(const std::vector<Shape>& shapes) {
  Tensors tensors;
  for (const Shape& shape : shapes) tensors.push_back(shape.empty());
  return tensors;
}

std::vector<Shape> shapes_of(const Tensors& tensors) { return {tensors.begin(), tensors.end()}; }

at::Tensor copy_of(const at::Tensor& tensor) { return tensor.clone(at::MemoryFormat::Contiguous); }

void check(const char* verb, const ProcessGroup& group, const Tensors& tensors) {
  group.require_member(verb);
  const TensorCall call(verb, group);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) call.refuse("the tensor is undefined");
    if (tensor.layout() != at::kStrided) call.refuse("only dense tensors are supported");
  }
}

void check_operator(const char* verb, const ProcessGroup& group, const Tensors& tensors, ReduceOp op) {
  if (op == ReduceOp::SUM || op == ReduceOp::AVG || !at::GradMode::is_enabled()) return;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.requires_grad()) continue;
    TensorCall(verb, group)
        .refuse("gradients flow through sum and avg only, not ", name_of(op),
                "; use the function of tensor/collectives.h for values without gradients");
  }
}

void check_length(const char* verb, const ProcessGroup& group, const char* name, std::size_t length) {
  TensorCall(verb, group).expect_one_per_rank(name, length);
}

Tensors divided(Tensors tensors, const ProcessGroup& group, ReduceOp op) {
  if (op != ReduceOp::AVG) return tensors;
  for (at::Tensor& tensor : tensors) tensor = tensor / group.size();
  return tensors;
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group) {
  check("all_reduce", group, {tensor});
  check_operator("all_reduce", group, {tensor}, op);
  return apply(
      {tensor},
      [=](const Tensors& inputs) {
        const at::Tensor result = copy_of(inputs[0]);
        lockstep::all_reduce(result, op, group);
        return Tensors{result};
      },
      [=](const Tensors& gradients) { return Tensors{functional::all_reduce(gradients[0], op, group)}; })[0];
}

at::Tensor broadcast(const at::Tensor& tensor, Peer src, const ProcessGroup& group) {
  check("broadcast", group, {tensor});
  return apply(
      {tensor},
      [=](const Tensors& inputs) {
        const at::Tensor result = copy_of(inputs[0]);
        lockstep::broadcast(result, src, group);
        return Tensors{result};
      },
      [=](const Tensors& gradients) {
        return Tensors{functional::reduce(gradients[0], src, ReduceOp::SUM, group)};
      })[0];
}

at::Tensor reduce(const at::Tensor& tensor, Peer dst, ReduceOp op, const ProcessGroup& group) {
  check("reduce", group, {tensor});
  check_operator("reduce", group, {tensor}, op);
  return apply(
      {tensor},
      [=](const Tensors& inputs) {
        const at::Tensor result = copy_of(inputs[0]);
        lockstep::reduce(result, dst, op, group);
        return Tensors{dst.in(group, "reduce", "dst") == group.rank() ? result : at::zeros_like(result)};
      },
      [=](const Tensors& gradients) {
        return divided({functional::broadcast(gradients[0], dst, group)}, group, op);
      })[0];
}

Tensors all_gather(const at::Tensor& tensor, const ProcessGroup& group) {
  check("all_gather", group, {tensor});
  const Shape shape(tensor);
  return apply(
      {tensor},
      [=](const Tensors& inputs) {
        Tensors results = empty_like(std::vector<Shape>(static_cast<std::size_t>(group.size()), shape));
        lockstep::all_gather(results, inputs[0], group);
        return results;
      },
      [=](const Tensors& gradients) {
        return Tensors{functional::reduce_scatter(shape.empty(), gradients, ReduceOp::SUM, group)};
      });
}

Tensors gather(const at::Tensor& tensor, Peer dst, const ProcessGroup& group) {
  check("gather", group, {tensor});
  const Shape shape(tensor);
  return apply(
      {tensor},
      [=](const Tensors& inputs) {
        const bool is_root = dst.in(group, "gather", "dst") == group.rank();
        Tensors results;
        for (int r = 0; r < group.size(); ++r) results.push_back(is_root ? shape.empty() : shape.zeros());
        lockstep::gather(inputs[0], is_root ? results : Tensors(), dst, group);
        return results;
      },
      [=](const Tensors& gradients) { return Tensors{functional::scatter(gradients, dst, group)}; });
}

at::Tensor scatter(const Tensors& tensors, Peer src, const ProcessGroup& group) {
  check("scatter", group, tensors);
  check_length("scatter", group, "tensors", tensors.size());
  return apply(
      tensors,
      [=](const Tensors& inputs) {
        const bool is_root = src.in(group, "scatter", "src") == group.rank();
        const at::Tensor result = Shape(inputs[0]).empty();
        lockstep::scatter(result, is_root ? inputs : Tensors(), src, group);
        return Tensors{result};
      },
      [=](const Tensors& gradients) { return functional::gather(gradients[0], src, group); })[0];
}

at::Tensor reduce_scatter(const at::Tensor& output, const Tensors& input_list, ReduceOp op,
                          const ProcessGroup& group) {
  check("reduce_scatter", group, input_list);
  check_operator("reduce_scatter", group, input_list, op);
  check_length("reduce_scatter", group, "input_list", input_list.size());
  const Shape shape(output);
  return apply(
      input_list,
      [=](const Tensors& inputs) {
        const at::Tensor result = shape.empty();
        lockstep::reduce_scatter(result, inputs, op, group);
        return Tensors{result};
      },
      [=](const Tensors& gradients) {
        return divided(functional::all_gather(gradients[0], group), group, op);
      })[0];
}

Tensors all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                   const ProcessGroup& group) {
  check("all_to_all", group, input_tensor_list);
  check("all_to_all", group, output_tensor_list);
  check_length("all_to_all", group, "input_tensor_list", input_tensor_list.size());
  check_length("all_to_all", group, "output_tensor_list", output_tensor_list.size());
  const std::vector<Shape> inputs_shapes = shapes_of(input_tensor_list);
  const std::vector<Shape> outputs_shapes = shapes_of(output_tensor_list);
  return apply(
      input_tensor_list,
      [=](const Tensors& inputs) {
        Tensors results = empty_like(outputs_shapes);
        lockstep::all_to_all(results, inputs, group);
        return results;
      },
      [=](const Tensors& gradients) {
        return functional::all_to_all(empty_like(inputs_shapes), gradients, group);
      });
}

at::Tensor all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                             const std::vector<std::int64_t>& output_split_sizes,
                             const std::vector<std::int64_t>& input_split_sizes, const ProcessGroup& group) {
  check("all_to_all_single", group, {output, input});
  const Shape to(output);
  const Shape from(input);
  return apply(
      {input},
      [=](const Tensors& inputs) {
        const at::Tensor result = to.empty();
        lockstep::all_to_all_single(result, inputs[0], output_split_sizes, input_split_sizes, group);
        return Tensors{result};
      },
      [=](const Tensors& gradients) {
        return Tensors{functional::all_to_all_single(from.empty(), gradients[0], input_split_sizes,
                                                     output_split_sizes, group)};
      })[0];
}

}  // namespace lockstep::functional
