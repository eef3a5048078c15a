// Everything DDP asks of libtorch's autograd engine, in one place: who got a gradient, when backward ends,
// and which parameters a forward's outputs depend on. No other file of ddp/ includes the engine's headers.
//
//   // until it is destroyed
//   AutogradHooks hooks(parameters, [](std::size_t index, const at::Tensor& incoming) { ... });
//   AutogradHooks::at_end_of_backward([] { ... });                       // from within such a call
//   hooks.renew();                                                       // before each forward
//
// A gradient counts when it is defined: autograd also visits parameters for which a custom function returned
// none.
//
// Renewed   libtorch gives a parameter another gradient accumulator when its storage, dtype or device is
//           replaced, as torch::load() and Module::to() do. The old one goes on to serve graphs that were
//           recorded before, so its hook stays until the last of these is gone.
// Threads   the callback runs on whatever thread autograd uses. An exception thrown by it leaves backward()
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
  // `incoming` is what was accumulated: .grad itself lies in its memory if autograd took it over.
  using OnGradient = std::function<void(std::size_t parameter, const at::Tensor& incoming)>;

  // The hook is one of the list of the gradient accumulator's post hooks: it runs after the gradient was
  // accumulated into .grad and after the user's own post-accumulate hook, whose single slot stays free.
  AutogradHooks(const std::vector<at::Tensor>& parameters, OnGradient on_gradient);
  ~AutogradHooks();
  AutogradHooks(const AutogradHooks&) = delete;
  AutogradHooks& operator=(const AutogradHooks&) = delete;

  // Hooks the accumulators that libtorch has made since. Not during a backward.
  void renew();

  // Element i: a backward from `outputs` can reach parameter i. Sees no graph inside a custom Function that
  // builds one of its own in backward (reentrant checkpointing).
  std::vector<bool> reachable_from(const std::vector<at::Tensor>& outputs) const;

  // The following are for calls from within a hook or an end-of-backward callback.

  static int current_backward();    // differs between backward passes, also for one inside another
  static bool is_creating_graph();  // backward(create_graph = true)
  // The callback runs when the backward of the calling hook has ended, on the thread that called it. What it
  // throws leaves backward() with its type.
  static void at_end_of_backward(std::function<void()> callback);
  // For a call from anywhere: each backward that goes through one of `outputs` calls `callback` when it has
  // ended. Also a torch::autograd::grad(), and several times if it goes through several.
  static void at_end_of_backward_through(const std::vector<at::Tensor>& outputs,
                                         const std::function<void()>& callback);
  // In an end-of-backward callback: that backward ran inside another one (reentrant checkpointing).
  static bool ended_inside_another_backward();

 private:
  struct Accumulators;
  void hook(std::size_t parameter);

  const std::vector<at::Tensor> parameters_;
  const OnGradient on_gradient_;
  std::unique_ptr<Accumulators> accumulators_;
};

}  // namespace lockstep
