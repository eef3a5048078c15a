// checkpoint: trades time for memory. A part of the model does not keep its tensors in forward, and computes
// them again in backward. The counterpart of torch.utils.checkpoint with use_reentrant=False. (For files of a
// training run see state_dict.h.)
//
//   for (auto& block : blocks) x = dist::checkpoint(block, x);  // a module, or a function:
//   y = dist::checkpoint([&](const at::Tensor& x) { return head(norm(x)); }, x);
//   auto z = dist::checkpoint_sequential(layers, /*segments=*/8, x);  // a torch::nn::Sequential in 8 parts
//
// Memory       Of each checkpointed part only the inputs are kept. In backward the tensors of one part exist
//              at a time, each until it has been used. n equal layers in k parts take about k + n/k layers'
//              worth. Parts may be nested.
// Time         One more forward of the part, which ends as soon as the last tensor that backward needs is
//              computed.
// Function     Anything that can be called with the inputs, or a pointer to a module. It is copied and called
//              a second time, perhaps on another thread. What it captures by reference must live until
//              backward (`this` does, a local variable does not). It must compute the same both times. Its
//              side effects happen twice: a batch normalisation in it moves its running statistics twice as
//              far, as in Python.
// Inputs       Tensors, also within optional, vector, pair and tuple, keep their gradients; any other input
//              is copied. None of them need require a gradient. If a tensor is changed in place before
//              backward, libtorch throws.
// Outputs      the function's result, unchanged.
// Same         Random numbers (preserve_rng_state; those of the CPU and of the inputs' devices), autocast and
//              grad mode are as in forward. Gradients are then those without checkpoint, bit for bit, and
//              each parameter's arrives once. So DDP (find_unused_parameters too), retain_graph and
//              torch::autograd::grad work, also if backward needs only a part of the results. Without grad
//              mode the function is simply called.
// Fails        InvalidArgument, from backward(): the function saved other tensors the second time (another
//              number; or, unless determinism_check is off, another shape, dtype or device). The message has
//              both. InvalidArgument in a Python process (saved_tensors_hooks.h). An exception of the second
//              call leaves backward().
// Source       the design of torch/utils/checkpoint.py (2.13), "non-reentrant"; Chen et al., arXiv
//              1604.06174.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/autograd/saved_tensors_hooks.h"

namespace torch::nn {
class Sequential;
}

namespace lockstep {

struct CheckpointOptions {
  // off saves a copy of the generator's state per call, for functions without randomness
  bool preserve_rng_state = true;
  bool determinism_check = true;  // compares shape, dtype and device of recomputed tensors
  bool early_stop = true;         // off: the second call always runs to its end
};

namespace detail {

// One call of checkpoint(): the function and inputs for the second call, and its results.
class CheckpointFrame;

class CheckpointRecorder {
 public:
  using Again = std::function<void(const std::vector<at::Tensor>& inputs)>;
  CheckpointRecorder(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs, Again again);
  ~CheckpointRecorder();  // called when the function has returned
  CheckpointRecorder(const CheckpointRecorder&) = delete;
  CheckpointRecorder& operator=(const CheckpointRecorder&) = delete;

 private:
  std::shared_ptr<CheckpointFrame> frame_;
  std::optional<SavedTensorsHooks> hooks_;
};

template <typename T> inline constexpr bool is_optional = false;
template <typename T> inline constexpr bool is_optional<std::optional<T>> = true;
template <typename T> inline constexpr bool is_vector = false;
template <typename T> inline constexpr bool is_vector<std::vector<T>> = true;
template <typename T> inline constexpr bool is_tuple_or_pair = false;
template <typename... T> inline constexpr bool is_tuple_or_pair<std::tuple<T...>> = true;
template <typename A, typename B> inline constexpr bool is_tuple_or_pair<std::pair<A, B>> = true;

// Calls visit(at::Tensor&) for each tensor in an input, in the same order each time.
template <typename T, typename Visit> void for_each_tensor(T& input, const Visit& visit) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(input);
  } else if constexpr (is_optional<T>) {
    if (input) for_each_tensor(*input, visit);
  } else if constexpr (is_vector<T>) {
    if constexpr (!std::is_same_v<T, std::vector<bool>>) {
      for (auto& element : input) for_each_tensor(element, visit);
    }
  } else if constexpr (is_tuple_or_pair<T>) {
    std::apply([&](auto&... part) { (for_each_tensor(part, visit), ...); }, input);
  }
}

template <typename Function, typename... Inputs> auto call(Function& function, const Inputs&... inputs) {
  // tested first, because a Sequential cannot be called
  if constexpr (requires { function->forward(inputs...); }) {
    return function->forward(inputs...);
  } else if constexpr (requires { function.forward(inputs...); }) {  // an AnyModule
    return function.forward(inputs...);
  } else {
    return function(inputs...);
  }
}

}  // namespace detail

template <typename Function, typename... Inputs>
auto checkpoint(const CheckpointOptions& options, Function function, Inputs... inputs) {
  if (!c10::GradMode::is_enabled()) return detail::call(function, inputs...);
  // The arguments of the second call. The recorder keeps the tensors among the inputs apart.
  auto kept = std::make_shared<std::tuple<Function, std::tuple<Inputs...>>>(function, std::tuple(inputs...));
  std::vector<at::Tensor> tensors;
  detail::for_each_tensor(std::get<1>(*kept), [&](at::Tensor& tensor) {
    tensors.push_back(std::move(tensor));
    tensor = at::Tensor();
  });
  const detail::CheckpointRecorder recorder(options, tensors, [kept](const std::vector<at::Tensor>& again) {
    auto [second, arguments] = *kept;
    auto next = again.begin();
    detail::for_each_tensor(arguments, [&](at::Tensor& tensor) { tensor = *next++; });
    std::apply([&f = second](const auto&... argument) { (void)detail::call(f, argument...); }, arguments);
  });
  tensors.clear();
  return detail::call(function, inputs...);
}

template <typename Function, typename... Inputs>
requires(!std::same_as<Function, CheckpointOptions>) auto checkpoint(Function function, Inputs... inputs) {
  return checkpoint(CheckpointOptions(), std::move(function), std::move(inputs)...);
}

// Runs the functions one after the other, in `segments` parts of equal size (the last also takes the
// remainder). All parts but the last are checkpointed, as in Python. Throws InvalidArgument unless 1 <=
// segments <= number of functions.
at::Tensor checkpoint_sequential(const torch::nn::Sequential& functions, std::int64_t segments,
                                 const at::Tensor& input, const CheckpointOptions& options = {});
at::Tensor checkpoint_sequential(const std::vector<std::function<at::Tensor(const at::Tensor&)>>& functions,
                                 std::int64_t segments, const at::Tensor& input,
                                 const CheckpointOptions& options = {});

}  // namespace lockstep
