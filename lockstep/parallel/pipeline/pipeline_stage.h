// PipelineStage: a part of a model, as a pipeline runs it. PipelineLoss: the function behind the last part.
//
//   torch::nn::Sequential first(torch::nn::Linear(8, 16), torch::nn::ReLU());
//   std::vector<dist::PipelineStage> stages = {first};                   // any module with forward()
//   stages.emplace_back([&](const std::vector<at::Tensor>& in) {         // or a function
//     return std::vector<at::Tensor>{first->forward(in[0]), in[1]};      // the mask goes on
//   }, first);
//
// Function    takes a tensor or a vector of tensors, and returns one or the other. It is a ModuleHolder or a
//             shared_ptr of a module with such a forward(), or anything that can be called. A vector is taken
//             where both would do, except by a torch::nn::Sequential.
// Tensors     of any shape and of the dtypes that travel (tensor/collectives.h), on the CPU. An undefined
//             tensor stands for an optional value. Gradients flow through floating-point tensors that require
//             one. The function must not change its inputs in place.
// Module      The second argument, or the module that is the function: where the pipeline finds
//             DeferredBatchNorm layers. Parameters need not be named: they get their gradients from autograd.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class SequentialImpl;
}

namespace lockstep {

namespace detail {

using Tensors = std::vector<at::Tensor>;

template <typename T>
concept TensorOrTensors =
    std::same_as<std::remove_cvref_t<T>, at::Tensor> || std::same_as<std::remove_cvref_t<T>, Tensors>;

inline Tensors as_tensors(at::Tensor tensor) { return {std::move(tensor)}; }
inline Tensors as_tensors(Tensors tensors) { return tensors; }

// The only one of several; throws InvalidArgument otherwise.
const at::Tensor& only_tensor(const Tensors& tensors);

template <typename T>
concept HoldsModule = requires(const T& holder) {
  { *holder } -> std::convertible_to<const torch::nn::Module&>;
};

template <typename Holder> std::shared_ptr<torch::nn::Module> module_of(const Holder& holder) {
  if constexpr (requires { holder.ptr(); })
    return holder.ptr();
  else
    return holder;
}

template <typename Function, typename Input>
concept TensorFunctionOf = requires(Function function, const Input& in) {
  { function(in) } -> TensorOrTensors;
};
template <typename Function>
concept TensorFunction = TensorFunctionOf<Function, Tensors> || TensorFunctionOf<Function, at::Tensor>;

// A function on tensors, of one that takes either a tensor or a vector.
template <TensorFunction Function> std::function<Tensors(const Tensors&)> on_tensors(Function function) {
  if constexpr (TensorFunctionOf<Function, Tensors>) {
    return [function](const Tensors& in) mutable { return as_tensors(function(in)); };
  } else {
    return [function](const Tensors& in) mutable { return as_tensors(function(only_tensor(in))); };
  }
}

template <typename Holder> std::function<Tensors(const Tensors&)> forward_of(Holder holder) {
  using Module = std::remove_cvref_t<decltype(*holder)>;
  constexpr bool is_sequential = std::derived_from<Module, torch::nn::SequentialImpl>;
  if constexpr (is_sequential || !requires(const Tensors& in) {
                  { holder->forward(in) } -> TensorOrTensors;
                }) {
    return [holder](const Tensors& in) mutable { return as_tensors(holder->forward(only_tensor(in))); };
  } else {
    return [holder](const Tensors& in) mutable { return as_tensors(holder->forward(in)); };
  }
}

}  // namespace detail

class PipelineStage {
 public:
  template <detail::HoldsModule Holder>
  PipelineStage(const Holder& module)  // NOLINT(google-explicit-constructor): {first, second}
      : function_(detail::forward_of(module)), module_(detail::module_of(module)) {}

  template <typename Function>
  requires(!detail::HoldsModule<Function> && !std::same_as<Function, PipelineStage> &&
           detail::TensorFunction<Function>)
      PipelineStage(Function function)  // NOLINT(google-explicit-constructor)
      : function_(detail::on_tensors(std::move(function))) {}

  template <detail::TensorFunction Function, detail::HoldsModule Holder>
  PipelineStage(Function function, const Holder& module)
      : function_(detail::on_tensors(std::move(function))), module_(detail::module_of(module)) {}

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const {
    return function_(inputs);
  }
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }  // may be null

 private:
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> function_;
  std::shared_ptr<torch::nn::Module> module_;
};

// The loss of a micro-batch, a tensor with one element: loss(output, target) of tensors, or of vectors.
class PipelineLoss {
 public:
  template <typename Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, PipelineLoss>)
      PipelineLoss(Function function) {  // NOLINT(google-explicit-constructor)
    using detail::Tensors;
    if constexpr (std::invocable<Function&, const Tensors&, const Tensors&>) {
      function_ = std::move(function);
    } else {
      function_ = [function](const Tensors& outputs, const Tensors& targets) mutable {
        return function(detail::only_tensor(outputs), detail::only_tensor(targets));
      };
    }
  }

  at::Tensor operator()(const std::vector<at::Tensor>& outputs,
                        const std::vector<at::Tensor>& targets) const {
    return function_(outputs, targets);
  }

 private:
  std::function<at::Tensor(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&)> function_;
};

}  // namespace lockstep
