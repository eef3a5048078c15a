#include "lockstep/optim/fused_steps.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <c10/core/DeviceGuard.h>

namespace lockstep::optim {

bool are_fusable(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  if (!first.is_cuda() || !at::isFloatingType(first.scalar_type())) return false;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.layout() != at::kStrided || tensor.is_neg() || tensor.device() != first.device() ||
        tensor.scalar_type() != first.scalar_type() || tensor.sizes() != first.sizes() ||
        tensor.strides() != first.strides() || !tensor.is_non_overlapping_and_dense())
      return false;
  }
  return true;
}

// The kernels read the number of the step from the GPU's memory, for each parameter.
void FusedAdam::run(const std::vector<std::vector<at::Tensor>>& lists) const {
  const at::Device device = lists[0].front().device();
  const c10::DeviceGuard guard(device);
  const at::Tensor number =
      at::full({}, static_cast<double>(step), at::TensorOptions(at::kFloat).device(device));
  const std::vector<at::Tensor> steps(lists[0].size(), number);
  const std::vector<at::Tensor> none;
  const auto kernel = [&](const auto& fused) {
    fused(lists[0], lists[1], lists[2], lists[3], amsgrad ? lists[4] : none, steps, lr, beta1, beta2,
          weight_decay, eps, amsgrad, maximize, std::nullopt, std::nullopt);
  };
  using Fused = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                     at::TensorList, double, double, double, double, double, bool, bool,
                     const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);
  decoupled ? kernel(static_cast<Fused*>(&at::_fused_adamw_))
            : kernel(static_cast<Fused*>(&at::_fused_adam_));
}

void FusedSgd::run(const std::vector<std::vector<at::Tensor>>& lists) const {
  const c10::DeviceGuard guard(lists[0].front().device());
  at::_fused_sgd_(lists[0], lists[1], lists.size() > 2 ? lists[2] : std::vector<at::Tensor>(), weight_decay,
                  momentum, lr, dampening, nesterov, maximize, /*is_first_step=*/false);
}

}  // namespace lockstep::optim
