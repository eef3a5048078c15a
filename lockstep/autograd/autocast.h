// autocast: inside the region, operations that gain from it run in float16 or bfloat16, and those that need
// the range run in float32. What torch.autocast is to Python.
//
//   at::Tensor loss;
//   {
//     const auto mixed = dist::autocast(at::kCPU, at::kBFloat16);
//     loss = cross_entropy(ddp->forward(batch.data), batch.target);
//   }                                                                 // as it was before
//   loss.backward();  // outside: each gradient in its operation's dtype
//
// Which operations: libtorch's own lists for the device, the same that Python uses (on CPU matmul, linear,
// conv and attention are lowered, most losses and norms raised; softmax stays what it was given). Parameters
// stay float32, and so do their gradients. bfloat16 has the range of float32 and needs no scaling; for
// float16 see grad_scaler.h.
//
// Threads     the calling thread alone, as in Python. Another thread begins a region of its own.
// Nesting     regions nest, also with enabled = false inside. They end in the order opposite to that in which
//             they began.
// Cache       a parameter is cast once per region, not once per use; the casts are dropped when the outermost
//             region ends. After a parameter has changed inside a region (an optimiser's step), its cast is
//             stale: step outside, as above.
// Fails       InvalidArgument: another dtype than these two with enabled = true (Python warns and runs in
//             full precision), or "meta" and other devices that have no autocast.
// Source      torch/amp/autocast_mode.py of PyTorch 2.13 for the order in which state is kept and restored.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <vector>

namespace lockstep {

class Autocast {
 public:
  Autocast(at::DeviceType device, std::optional<at::ScalarType> dtype, bool enabled,
           std::optional<bool> cache_enabled);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const at::DeviceType device_;
  const bool enabled_before_;
  const at::ScalarType dtype_before_;
  const bool cache_before_;
};

// `dtype`: by default that of the device, bfloat16 on CPU and float16 on GPUs. `cache_enabled`: by default as
// it is.
[[nodiscard]] inline Autocast autocast(at::DeviceType device, std::optional<at::ScalarType> dtype = {},
                                       bool enabled = true, std::optional<bool> cache_enabled = {}) {
  return {device, dtype, enabled, cache_enabled};
}

// What autocast is set to on this thread, for all devices: for code that must run later as it would have run
// here.
//
//   const AutocastState state = AutocastState::of_this_thread();
//   std::jthread worker([&] {
//     const AutocastState::Guard guard(state);              // until the end of the scope
//     loss_of(net->forward(x));
//   });
class AutocastState {
 public:
  static AutocastState of_this_thread();

  class Guard;

 private:
  struct OfDevice {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  AutocastState() = default;
  void apply() const;

  std::vector<OfDevice> devices_;
  bool cache_enabled_ = true;
};

class AutocastState::Guard {
 public:
  explicit Guard(const AutocastState& state);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  const AutocastState before_;
};

}  // namespace lockstep
