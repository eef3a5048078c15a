#include "lockstep/parallel/gradients/gradient_fit.h"

#include "lockstep/base/str.h"

namespace lockstep {

bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.device() == b.device();
}

std::optional<std::string> refusal_of(const at::Tensor& grad, const at::Tensor& like) {
  if (!grad.defined()) {
    return "its .grad was empty after the gradient was accumulated: a hook took it before it was averaged";
  }
  if (grad.layout() != c10::kStrided) {
    return lockstep::str("its gradient is ", grad.layout(),
                         ", which was not expected; name it in sparse_gradients, or use sparse(false)");
  }
  if (!are_alike(grad, like)) {
    return lockstep::str("its gradient is ", grad.scalar_type(), " ", grad.sizes(), ", and the bucket holds ",
                         like.scalar_type(), " ", like.sizes());
  }
  return std::nullopt;
}

}  // namespace lockstep
