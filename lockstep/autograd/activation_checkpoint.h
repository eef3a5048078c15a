// checkpoint: trades time for memory. What a part of the model computes is thrown away in forward and
// computed again in backward. The counterpart of torch.utils.checkpoint with use_reentrant=False. (Files of a
// training run: see state_dict.h.)
//
//   for (auto& block : blocks) x = dist::checkpoint(block, x);  // a module, or a function:
//   y = dist::checkpoint([&](const at::Tensor& x) { return head(norm(x)); }, x);
//   auto z = dist::checkpoint_sequential(layers, /*segments=*/8, x);  // a torch::nn::Sequential in 8 parts
//
// Memory       of each checkpointed part only its inputs are kept; in backward one part's tensors exist at a
//              time, each until it has been used. n equal layers in k parts: about k + n/k layers' worth.
//              Parts may be nested.
// Time         one more forward of the part, which ends as soon as the last tensor that backward needs is
//              there.
// Function     anything that can be called with the inputs, or a pointer to a module. It is copied and called
//              a second time, perhaps on another thread: what it captures by reference must live until
//              backward (`this` does, a local variable does not). It must do the same both times. What it
//              does besides is done twice: a batch normalisation in it moves its running statistics twice as
//              far, as in Python.
// Inputs       tensors, also within optional, vector, pair and tuple, keep their gradients; anything else is
//              copied. None of them need require a gradient. A tensor that is changed in place before
//              backward is an error of libtorch's.
// Outputs      whatever the function returns, as it is.
// Same         random numbers (preserve_rng_state; those of the CPU and of the inputs' devices), autocast and
//              grad mode are as in forward. Gradients are then those without checkpoint, bit for bit, and
//              each parameter's arrives once: DDP (find_unused_parameters too), retain_graph,
//              torch::autograd::grad and a part that backward needs only some of need no attention. Without
//              grad mode the function is simply called.
// Fails        InvalidArgument, from backward(): the function saved other tensors the second time (their
//              number; or, unless determinism_check is off, shape, dtype or device), with both.
//              InvalidArgument in a Python process (saved_tensors_hooks.h). What the function throws the
//              second time leaves backward().
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
  bool preserve_rng_state =
      true;  // off saves a copy of the generator's state per call, for functions without randomness
  bool determinism_check = true;  // shape, dtype and device of what was computed again
  bool early_stop = true;         // off: the function always runs to its end the second time
};

namespace detail {

// One call of checkpoint(): what it takes to run the function again, and what that gave.
class CheckpointFrame;

class CheckpointRecorder {
 public:
  using Again = std::function<void(const std::vector<at::Tensor>& inputs)>;
  CheckpointRecorder(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs, Again again);
  ~CheckpointRecorder();  // the function has returned
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
  if constexpr (requires { function->forward(inputs...); }) {  // before the next: Sequential cannot be called
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
  // What the second call is made with: the tensors among the inputs are kept apart, by the recorder.
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

// Runs the functions one after the other, in `segments` parts of equal size (the last takes what is left
// over); all but the last part are checkpointed, as in Python. Throws InvalidArgument unless 1 <= segments <=
// number of functions.
at::Tensor checkpoint_sequential(const torch::nn::Sequential& functions, std::int64_t segments,
                                 const at::Tensor& input, const CheckpointOptions& options = {});
at::Tensor checkpoint_sequential(const std::vector<std::function<at::Tensor(const at::Tensor&)>>& functions,
                                 std::int64_t segments, const at::Tensor& input,
                                 const CheckpointOptions& options = {});

}  // namespace lockstep
