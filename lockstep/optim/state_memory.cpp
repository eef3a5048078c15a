#include "lockstep/optim/state_memory.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>

namespace lockstep::optim {

at::Tensor StateMemory::zeros_like(const at::Tensor& tensor) const {
  if (file_ == nullptr || !tensor.device().is_cpu()) return at::zeros_like(tensor);
  const at::Tensor form = at::empty_like(tensor, tensor.options().device(at::kMeta));  // no memory
  return at::from_blob(
      file_->allocate(form.nbytes()), form.sizes(), form.strides(), [held = file_](void*) {},
      tensor.options().requires_grad(false));
}

}  // namespace lockstep::optim
