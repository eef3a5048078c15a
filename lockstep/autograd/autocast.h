// autocast: inside the region, operations that gain from it run in float16 or bfloat16. Operations that need
// the range run in float32. It is Python's torch.autocast.
//
//   at::Tensor loss;
//   {
//     const auto mixed = dist::autocast(at::kCPU, at::kBFloat16);
//     loss = cross_entropy(ddp->forward(batch.data), batch.target);
//   }                                                                 // as it was before
//   loss.backward();  // outside: each gradient in its operation's dtype
//
// The operations are those of libtorch's lists for the device, as in Python. On the CPU matmul, linear, conv
// and attention are lowered, and most losses and norms raised; softmax keeps its dtype. Parameters stay
// float32, and so do their gradients. bfloat16 has the range of float32 and needs no scaling; for float16 see
// grad_scaler.h.
//
// Threads     The calling thread alone, as in Python. Another thread begins a region of its own.
// Nesting     Regions nest, also with enabled = false inside. They end in the reverse order of their
//             beginning.
// Cache       A parameter is cast once per region, not once per use. The casts are dropped when the outermost
//             region ends. If a parameter changes inside a region (an optimiser's step), its cast is stale.
//             So step outside, as above.
// Fails       InvalidArgument: another dtype than these two with enabled = true (Python warns and runs in
//             full precision), or a device without autocast, such as "meta".
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

// `dtype` defaults to that of the device, bfloat16 on the CPU and float16 on GPUs. `cache_enabled` defaults
// to the present setting.
[[nodiscard]] inline Autocast autocast(at::DeviceType device, std::optional<at::ScalarType> dtype = {},
                                       bool enabled = true, std::optional<bool> cache_enabled = {}) {
  return {device, dtype, enabled, cache_enabled};
}

// The settings of autocast on this thread, for all devices. With it, code that runs later can run as it would
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
