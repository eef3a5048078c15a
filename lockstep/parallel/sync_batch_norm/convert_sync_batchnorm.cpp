#include "lockstep/parallel/sync_batch_norm/convert_sync_batchnorm.h"

#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>

#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

namespace lockstep {
namespace {

struct Converted {
  std::weak_ptr<const torch::nn::Module>
      layer;  // if expired, another tensor now has the address of this layer's tensor
  std::optional<ProcessGroup> process_group;
  bool affine = true;
  std::string name;
};

// Finds a layer by the tensor by which the kernel recognises it.
class ConvertedLayers {
 public:
  void add(const at::Tensor& tensor, Converted layer) {
    const std::unique_lock lock(mutex_);
    std::erase_if(layers_, [](const auto& entry) { return entry.second.layer.expired(); });
    layers_.insert_or_assign(tensor.unsafeGetTensorImpl(), std::move(layer));
  }

  std::optional<Converted> find(const std::optional<at::Tensor>& tensor) const {
    if (!tensor || !tensor->defined()) return std::nullopt;
    const std::shared_lock lock(mutex_);
    const auto found = layers_.find(tensor->unsafeGetTensorImpl());
    return found == layers_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const void*, Converted> layers_;  // guarded by mutex_
};

ConvertedLayers& converted_layers() {
  static ConvertedLayers layers;
  return layers;
}

// A converted layer and the group over which it normalises now; no group in eval mode or for one rank.
struct LayerCall {
  bool affine = true;
  std::optional<ProcessGroup> group;
  std::string name;
};

LayerCall recognise(const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& weight) {
  auto known = converted_layers().find(running_mean);
  if (!known) known = converted_layers().find(weight);
  if (!known) return {};
  const auto layer = known->layer.lock();
  if (!layer) return {};
  return {.affine = known->affine,
          .group = layer->is_training() ? group_to_normalise(known->process_group) : std::nullopt,
          .name = known->name};
}

at::Tensor batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum,
                      double eps, bool cudnn_enabled) {
  const LayerCall call = training ? recognise(running_mean, weight) : LayerCall();
  const std::optional<at::Tensor> none;
  const auto& scale = call.affine ? weight : none;
  if (call.group) {
    return sync_batch_norm(input, running_mean.value_or(at::Tensor()), running_var.value_or(at::Tensor()),
                           scale.value_or(at::Tensor()), bias.value_or(at::Tensor()), momentum, eps,
                           *call.group, call.name);
  }
  return at::native::batch_norm(input, scale, bias, running_mean, running_var, training, momentum, eps,
                                cudnn_enabled);
}

// The kernel stays for good, because it cannot be removed while another thread runs it.
void install_kernel() {
  static const bool installed = [] {
    for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCPU,
                           c10::DispatchKey::AutogradCUDA}) {
      auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
      library->impl("batch_norm", TORCH_FN(batch_norm));
    }
    return true;
  }();
  static_cast<void>(installed);
}

template <typename Layer>
bool convert_as(torch::nn::Module& module, const std::optional<ProcessGroup>& process_group,
                const std::string& name) {
  auto* layer = module.as<Layer>();
  if (layer == nullptr) return false;
  const std::shared_ptr<const torch::nn::Module> shared = module.weak_from_this().lock();
  if (!shared) {
    throw InvalidArgument(
        "convert_sync_batchnorm: the BatchNorm is held by no shared_ptr or ModuleHolder, so its lifetime is "
        "not "
        "known; make it with torch::nn::BatchNorm2d norm(...) or use SyncBatchNorm");
  }
  const bool affine = layer->bias.defined();
  // A layer without any tensor gets one, by which it is recognised. It is not registered, and the kernel
  // takes it away.
  if (!layer->running_mean.defined() && !layer->weight.defined()) layer->weight = at::ones({1});
  const at::Tensor& known_by = layer->running_mean.defined() ? layer->running_mean : layer->weight;
  converted_layers().add(known_by,
                         {.layer = shared, .process_group = process_group, .affine = affine, .name = name});
  return true;
}

}  // namespace

std::size_t convert_sync_batchnorm(torch::nn::Module& module,
                                   const std::optional<ProcessGroup>& process_group) {
  if (process_group) process_group->require_member("convert_sync_batchnorm");
  install_kernel();
  using torch::nn::BatchNorm1dImpl, torch::nn::BatchNorm2dImpl, torch::nn::BatchNorm3dImpl;
  std::set<const torch::nn::Module*> converted;  // a layer may have several names
  const auto convert = [&](torch::nn::Module& each, const std::string& name) {
    const bool is_one = convert_as<BatchNorm1dImpl>(each, process_group, name) ||
                        convert_as<BatchNorm2dImpl>(each, process_group, name) ||
                        convert_as<BatchNorm3dImpl>(each, process_group, name);
    if (is_one) converted.insert(&each);
  };
  convert(module, "");
  for (const auto& child : module.named_modules("", /*include_self=*/false))
    convert(*child.value(), child.key());
  return converted.size();
}

}  // namespace lockstep
