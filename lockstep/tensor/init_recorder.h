// InitRecorder: while one is active on a thread, tensors that are made there get no memory, and what fills
// them is written to an InitTape. meta_init.h is what a program uses.
//
//   InitRecorder recorder;                       // from here on, on this thread
//   at::Tensor weight = torch::empty({768, 768}).uniform_(-1, 1);
//   is_deferred(weight);                         // true
//
// A deferred tensor looks like one in CPU memory: is_cpu(), its keys, set_data() to a real tensor. It has a
// storage without memory, whose every use throws libtorch's error with our words in it.
//
// How       libtorch asks for the key DeferredInit before all other keys, autograd's included. The recorder
//           gives that key a fallback for all operators, which is active while the key is included on a
//           thread. The fallback runs an operator on tensors of the meta device for shapes and views.
// Real      are: tensors of at most 4 KiB, and all that is computed of real tensors alone; what a constructor
//           asks a deferred tensor for, item() say: the tape is replayed for it.
// Graphs    are not recorded: backward() through a result of a constructor throws.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>

namespace lockstep {

class InitTape;

class InitRecorder {
 public:
  // An active one of this thread goes on instead, and this one does nothing.
  InitRecorder();
  ~InitRecorder();
  InitRecorder(const InitRecorder&) = delete;
  InitRecorder& operator=(const InitRecorder&) = delete;

 private:
  const std::shared_ptr<InitTape> before_;
  const c10::impl::IncludeDispatchKeyGuard include_;
};

// Which tape fills a tensor that has no memory, and the tensor in the tape's own form.
struct Deferred {
  std::shared_ptr<const InitTape> tape;
  at::Tensor meta;
};
// No tape: a tensor that has memory.
Deferred deferred_of(const at::Tensor& tensor);

}  // namespace lockstep
