// saved_tensors_hooks: decides how the tensors that operations save for their backward are kept. The
// counterpart of torch.autograd.graph.saved_tensors_hooks, which libtorch has only for Python.
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
// Pack         is called in forward for each tensor that an operation saves (parameters and inputs too). It
//              returns a function that gives the tensor back. Only that function keeps anything. Pack must
//              not change the tensor.
// Unpack       is that function. It is called when backward needs the tensor, once per backward and use, on
//              the thread of that backward. Shape, dtype and device must be the tensor's.
// Nesting      Only the innermost hooks of this thread are called.
// Threads      The hooks hold for operations of the calling thread. Backward may run anywhere.
// Fails        InvalidArgument inside a Python process, whose engine has hooks of its own: use Python's
//              there. An exception of pack leaves the operation, one of unpack leaves backward(), with its
//              type.
// How          libtorch asks its autograd engine for such hooks. The first call installs an engine for the
//              process that provides them. In all else it is libtorch's.
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

// The hooks hold until the guard is destroyed. Guards end in the reverse order of their beginning.
[[nodiscard]] inline SavedTensorsHooks saved_tensors_hooks(SavedTensorsHooks::Pack pack) {
  return SavedTensorsHooks(std::move(pack));
}

}  // namespace lockstep
