#include "lockstep/parallel/replicas/model_checks.h"

#include <algorithm>
#include <unordered_set>

#include "lockstep/base/str.h"
#include "lockstep/parallel/replicas/broadcast_tensors.h"
#include "lockstep/tensor/meta_init.h"

namespace lockstep {
namespace {

void check_tensor(const Wrapper& wrapper, const std::string& name, const at::Tensor& tensor,
                  bool is_trained) {
  const std::string who = lockstep::str("\"", printable(name), "\"");
  if (!tensor.defined()) wrapper.refuse(who + " is an undefined tensor");
  if (tensor.layout() != c10::kStrided)
    wrapper.refuse(lockstep::str(who, " is ", tensor.layout(), "; only dense tensors are supported"));
  if (tensor.is_quantized()) {
    wrapper.refuse(
        lockstep::str(who, " is quantised (", c10::toString(tensor.scalar_type()),
                      "), and its scale would not travel with it; keep it outside of the module, or "
                      "register what it dequantises to"));
  }
  if (is_trained && repeats(tensor)) {
    wrapper.refuse(lockstep::str(who,
                                 " has several elements in one place of memory (expand()), so it has no "
                                 "gradient that could be averaged; train a clone() of it"));
  }
}

// All tensors must be on the CPU, or on this rank's device if the group serves it.
void check_device(const Wrapper& wrapper, const std::string& name, const at::Device& device,
                  const at::Device& first, const ProcessGroup& group) {
  const std::string who = lockstep::str("\"", printable(name), "\" is on ", device);
  if (device.is_cpu() && first.is_cpu()) return;
  if (device != first)
    wrapper.refuse(lockstep::str(who, ", other tensors are on ", first, "; a model is on one device"));
  const Backend& backend = group.backend();
  if (!device.is_cuda() || !backend.serves(DeviceType::CUDA))
    wrapper.refuse(lockstep::str(who, ", and backend \"", backend.name(), "\" serves CPU tensors only",
                                 device.is_cuda() ? "; use init_process_group(\"nccl\")" : ""));
  if (device.index() != backend.device_index())
    wrapper.refuse(
        lockstep::str(who, ", and this rank's device in the group is cuda:", backend.device_index()));
}

void check_devices(const Wrapper& wrapper, const NamedTensors& tensors, const std::vector<int>& device_ids,
                   const ProcessGroup& group) {
  const at::Device device = tensors.empty() ? at::Device(at::kCPU) : tensors.front().second.device();
  for (const auto& [name, tensor] : tensors) check_device(wrapper, name, tensor.device(), device, group);
  if (device_ids.empty() || (device.is_cuda() && device_ids == std::vector<int>{device.index()})) return;
  wrapper.refuse(lockstep::str("device_ids names GPU ", device_ids.front(), ", and the model is on ", device,
                               device.is_cpu() ? ": leave device_ids empty, as for a CPU model in Python"
                                               : ": name its device alone, or leave device_ids empty"));
}

NamedTensors trainable(const Wrapper& wrapper, const NamedTensors& parameters) {
  NamedTensors chosen;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) continue;
    if (!tensor.is_leaf()) {
      wrapper.refuse(
          lockstep::str("\"", printable(name),
                        "\" is the result of an operation; wrap the leaf tensors it was computed from"));
    }
    chosen.emplace_back(name, tensor);
  }
  if (chosen.empty()) {
    wrapper.refuse(
        "the model has no parameter that requires a gradient, so there is nothing to average; use it without "
        "DDP");
  }
  return chosen;
}

void check_sparse(const Wrapper& wrapper, const std::vector<std::string>& names,
                  const NamedTensors& parameters) {
  for (const std::string& wanted : names) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& named) { return named.first == wanted; });
    const std::string who = lockstep::str("\"", printable(wanted), "\"");
    if (found == parameters.end())
      wrapper.refuse("sparse_gradients names " + who +
                     ", which is not a parameter of the model (a shared one counts under its first name)");
    if (!found->second.is_cpu())
      wrapper.refuse(lockstep::str(who, " has sparse gradients and is on ", found->second.device(),
                                   "; only those of CPU parameters travel: use sparse(false)"));
  }
}

}  // namespace

NamedTensors distinct(const NamedTensors& tensors) {
  NamedTensors once;
  std::unordered_set<const void*> seen;
  for (const auto& named : tensors) {
    if (seen.insert(named.second.unsafeGetTensorImpl()).second) once.push_back(named);
  }
  return once;
}

std::string name_of_model(const torch::nn::Module& module) {
  constexpr std::string_view IMPL = "Impl";
  std::string name = module.name();
  const std::size_t scope = name.find('<') == std::string::npos ? name.rfind("::") : std::string::npos;
  if (scope != std::string::npos) name.erase(0, scope + 2);
  if (name.ends_with(IMPL) && name.size() > IMPL.size()) name.resize(name.size() - IMPL.size());
  return name;
}

NamedTensors check_model(const Wrapper& wrapper, const NamedTensors& parameters, const NamedTensors& buffers,
                         const std::vector<int>& device_ids, const std::vector<std::string>& sparse,
                         const ProcessGroup& group) {
  NamedTensors all = parameters;
  all.insert(all.end(), buffers.begin(), buffers.end());
  for (const auto& [name, tensor] : parameters) check_tensor(wrapper, name, tensor, tensor.requires_grad());
  for (const auto& [name, tensor] : buffers) check_tensor(wrapper, name, tensor, /*is_trained=*/false);
  check_devices(wrapper, all, device_ids, group);
  check_sparse(wrapper, sparse, distinct(parameters));
  return trainable(wrapper, distinct(parameters));
}

void refuse_deferred(const Wrapper& wrapper, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!is_deferred(tensor)) continue;
    wrapper.refuse(
        lockstep::str("\"", printable(name),
                      "\" has no memory yet, because meta_init() made it: wrap the module in "
                      "ShardedDataParallel, which places it, or call lockstep::materialize(module) "
                      "first"));
  }
}

void refuse_move(const Wrapper& wrapper, const NamedTensors& tensors, const std::optional<at::Device>& device,
                 const std::optional<at::ScalarType>& dtype) {
  for (const auto& [name, tensor] : tensors) {
    const bool stays = !device || tensor.device() == *device ||
                       (tensor.device().type() == device->type() && !device->has_index());
    const bool keeps = !dtype || tensor.scalar_type() == *dtype || !tensor.is_floating_point();
    if (stays && keeps) continue;
    wrapper.refuse(lockstep::str(
        "to() would change \"", printable(name), "\", which is ", tensor.scalar_type(), " on ",
        tensor.device(), ": the buckets of its gradients were made for that. Move the model, then wrap it"));
  }
}

}  // namespace lockstep
