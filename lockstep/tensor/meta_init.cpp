#include "lockstep/tensor/meta_init.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <unordered_map>

#include "lockstep/tensor/init_tape.h"

namespace lockstep {

void materialize(torch::nn::Module& module) {
  std::vector<at::Tensor> tensors = module.parameters();
  const std::vector<at::Tensor> buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  materialize(tensors);
}

// Tensors of one storage are views of one tensor afterwards.
void materialize(const std::vector<at::Tensor>& tensors) {
  std::unordered_map<const void*, std::vector<at::Tensor>> by_storage;
  std::vector<const void*> order;
  for (const at::Tensor& tensor : tensors) {
    if (!is_deferred(tensor)) continue;
    const void* const storage = deferred_of(tensor).meta.storage().unsafeGetStorageImpl();
    if (by_storage[storage].empty()) order.push_back(storage);
    by_storage[storage].push_back(tensor);
  }
  const at::NoGradGuard no_grad;
  for (const void* const storage : order) {
    at::Tensor first;
    for (at::Tensor tensor : by_storage[storage]) {
      const auto [tape, meta] = deferred_of(tensor);
      if (tape == nullptr) continue;  // the same tensor under a second name
      const at::Tensor value = first.defined() ? tape->view_of(first, meta) : tape->value_of(meta);
      if (!first.defined()) first = value;
      tensor.set_data(value);
    }
  }
}

bool is_deferred(const at::Tensor& tensor) { return deferred_of(tensor).tape != nullptr; }

void copy_values(const at::Tensor& place, const at::Tensor& tensor) {
  const auto [tape, meta] = deferred_of(tensor);
  const at::NoGradGuard no_grad;
  if (tape != nullptr && place.is_cpu()) {
    tape->fill(place, meta);
  } else if (tape != nullptr) {
    const at::Tensor values = at::empty(place.sizes(), place.options().device(at::kCPU));
    tape->fill(values, meta);
    at::Tensor(place).copy_(values);
  } else {
    at::Tensor(place).copy_(tensor.detach());
  }
}

}  // namespace lockstep
