// saved_tensors_hooks: decides what becomes of the tensors that operations keep for their backward. The
// counterpart of torch.autograd.graph.saved_tensors_hooks, which libtorch has for Python alone.
//
//   {
//     const auto guard = dist::saved_tensors_hooks([](const at::Tensor& tensor) {  // keeps them in half the
//                                                                                  // memory
//       return [small = tensor.to(at::kBFloat16), dtype = tensor.scalar_type()] { return small.to(dtype); };
//     });
//     loss = loss_of(net->forward(x));
//   }
//   loss.backward();
//
// Pack         is called in forward for each tensor that an operation saves (parameters and inputs too), and
//              returns what gives the tensor back. It does not keep the tensor unless what it returns does.
//              It must not change it.
// Unpack       is called when backward needs the tensor, once per backward and use, on the thread that
//              backward runs on. Shape, dtype and device must be the tensor's.
// Nesting      the innermost of this thread alone is called.
// Threads      the hooks hold for operations of the calling thread. Backward may be anywhere.
// Fails        InvalidArgument inside a Python process, whose engine has hooks of its own: use Python's
//              there. What pack throws leaves the operation, what unpack throws leaves backward(), with its
//              type.
// How          libtorch asks its autograd engine for such hooks; the first call installs an engine for the
//              process that answers. It is libtorch's in all else.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace lockstep {

class SavedTensorsHooks {
 public:
  using Unpack = std::function<at::Tensor()>;
  using Pack = std::function<Unpack(const at::Tensor&)>;

  explicit SavedTensorsHooks(Pack pack);
  ~SavedTensorsHooks();
  SavedTensorsHooks(const SavedTensorsHooks&) = delete;
  SavedTensorsHooks& operator=(const SavedTensorsHooks&) = delete;

 private:
  const Pack pack_;
};

// Until the guard is destroyed. Guards end in the order opposite to that in which they began.
[[nodiscard]] inline SavedTensorsHooks saved_tensors_hooks(SavedTensorsHooks::Pack pack) {
  return SavedTensorsHooks(std::move(pack));
}

}  // namespace lockstep
