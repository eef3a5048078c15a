// AutogradHooks: all uses of libtorch's autograd engine by the wrappers, in one place. It tells which
// parameter got a gradient, when backward ends, and which parameters a forward's outputs depend on. No other
// file includes the engine's headers.
//
//   // until it is destroyed
//   AutogradHooks hooks(parameters, [](std::size_t index, const at::Tensor& incoming) { ... });
//   AutogradHooks::at_end_of_backward([] { ... });                       // from within such a call
//   hooks.renew();                                                       // before each forward
//
// A gradient counts only if it is defined. Autograd also visits parameters for which a custom function
// returned no gradient.
//
// Renewed   libtorch gives a parameter a new gradient accumulator when its storage, dtype or device is
//           replaced, as torch::load() and Module::to() do. Graphs that were recorded before still use the
//           old one. So its hook stays until the last of these graphs is gone.
// Threads   The callback runs on any thread that autograd uses. An exception thrown by it leaves backward()
//           with its type. Destroy the hooks only while no backward is running.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

class AutogradHooks {
 public:
  // `incoming` is the gradient that was accumulated. If autograd took it over, .grad lies in its memory.
  using OnGradient = std::function<void(std::size_t parameter, const at::Tensor& incoming)>;

  // The hook is in the list of the gradient accumulator's post hooks. So it runs after the gradient was
  // accumulated into .grad, and after the program's own post-accumulate hook, whose single slot stays free.
  AutogradHooks(const std::vector<at::Tensor>& parameters, OnGradient on_gradient);
  ~AutogradHooks();
  AutogradHooks(const AutogradHooks&) = delete;
  AutogradHooks& operator=(const AutogradHooks&) = delete;

  // Hooks the accumulators that libtorch has made since. Not during a backward.
  void renew();

  // Element i says whether a backward from `outputs` can reach parameter i. It does not see the graph that a
  // custom Function builds in its own backward (reentrant checkpointing).
  std::vector<bool> reachable_from(const std::vector<at::Tensor>& outputs) const;

  // The following functions are called from within a hook or an end-of-backward callback.

  static int current_backward();    // differs between backward passes, also for one inside another
  static bool is_creating_graph();  // backward(create_graph = true)
  // The callback runs when the backward of the calling hook has ended, on the thread that called it. An
  // exception of the callback leaves backward() with its type.
  static void at_end_of_backward(std::function<void()> callback);
  // May be called anywhere. Each backward that passes through one of `outputs` calls `callback` when it has
  // ended, several times if it passes through several. A torch::autograd::grad() does so, too.
  static void at_end_of_backward_through(const std::vector<at::Tensor>& outputs,
                                         const std::function<void()>& callback);
  // For an end-of-backward callback: whether that backward ran inside another one (reentrant checkpointing).
  static bool ended_inside_another_backward();

 private:
  struct Accumulators;
  void hook(std::size_t parameter);

  const std::vector<at::Tensor> parameters_;
  const OnGradient on_gradient_;
  std::unique_ptr<Accumulators> accumulators_;
};

}  // namespace lockstep
