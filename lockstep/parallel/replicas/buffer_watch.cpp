#include "lockstep/parallel/replicas/buffer_watch.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

template <typename Visit>
void visit_modules(const torch::nn::Module& module, std::unordered_set<const void*>& seen,
                   const Visit& visit) {
  if (!seen.insert(&module).second) return;
  visit(module);
  for (const auto& child : module.children()) visit_modules(*child, seen, visit);
}

}  // namespace

BufferWatch::References BufferWatch::own_references(const NamedTensors& buffers) const {
  References counts;
  for (const auto& [name, tensor] : buffers) ++counts[tensor.unsafeGetTensorImpl()];
  std::unordered_set<const void*> seen;
  if (module_ == nullptr) return counts;
  visit_modules(*module_, seen, [&counts](const torch::nn::Module& module) {
    for (const auto& item : module.named_buffers(/*recurse=*/false))
      ++counts[item.value().unsafeGetTensorImpl()];
  });
  return counts;
}

void BufferWatch::forward_begins(const NamedTensors& buffers) {
  if (has_begun_) return;
  has_begun_ = true;
  References own = own_references(buffers);
  for (const auto& [name, tensor] : buffers) {
    const void* address = tensor.unsafeGetTensorImpl();
    if (tensor.use_count() > own[address]) held_.insert(address);
  }
}

std::optional<std::string> BufferWatch::change(const NamedTensors& buffers) const {
  const auto because = [](const std::string& name, const char* what) {
    return str("buffer \"", printable(name), "\" ", what,
               ", so the ranks exchange a tensor that the model does not use. Change buffers in place "
               "(copy_(), add_()), or wrap the model again");
  };
  if (module_ != nullptr) {
    const auto now = module_->named_buffers();
    for (const auto& [name, tensor] : buffers) {
      const at::Tensor* registered = now.find(name);
      if (registered == nullptr || !registered->is_same(tensor))
        return because(name, "was registered anew or removed after the model was wrapped");
    }
  }
  References own = own_references(buffers);
  for (const auto& [name, tensor] : buffers) {
    const void* address = tensor.unsafeGetTensorImpl();
    if (held_.contains(address) && tensor.use_count() <= own[address])
      return because(name, "was assigned a new tensor, and the registered one is left behind");
  }
  return std::nullopt;
}

}  // namespace lockstep
