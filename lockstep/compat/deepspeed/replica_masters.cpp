#include "lockstep/compat/deepspeed/replica_masters.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/optim/group_of_each.h"
#include "lockstep/optim/torch_optimizer_state.h"

namespace lockstep::compat::deepspeed {
namespace {

bool has_16_bits(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

std::string master_name(const std::string& parameter) { return "state." + parameter + ".master_weight"; }

}  // namespace

ReplicaMasters::ReplicaMasters(const NamedTensors& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    parameters_.emplace_back(name, parameter);
    trained_.emplace_back(
        name, has_16_bits(parameter) ? parameter.detach().to(at::kFloat).set_requires_grad(true) : parameter);
  }
}

std::vector<at::Tensor> ReplicaMasters::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
  return tensors;
}

std::vector<std::vector<optim::ParameterShard>> ReplicaMasters::grouped(
    const std::vector<std::vector<at::Tensor>>& groups) const {
  const auto [group_of, problem] = optim::group_of_each(parameters_, groups);
  if (!problem.empty())
    throw InvalidArgument("DeepSpeed engine: the parameter groups of the optimizer " + problem);
  std::vector<std::vector<optim::ParameterShard>> shards(groups.size() + 1);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const auto& [name, tensor] = trained_[i];
    shards[group_of[i]].push_back(
        {.name = name, .shape = tensor.sizes().vec(), .offset = 0, .tensor = tensor});
  }
  return shards;
}

bool ReplicaMasters::has_master(std::size_t i) const {
  return !trained_[i].second.is_same(parameters_[i].second);
}

void ReplicaMasters::take_gradients() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (!has_master(i)) continue;
    const at::Tensor& gradient = parameters_[i].second.grad();
    trained_[i].second.mutable_grad() = gradient.defined() ? gradient.to(at::kFloat) : at::Tensor();
  }
}

void ReplicaMasters::round() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (has_master(i)) parameters_[i].second.copy_(trained_[i].second);
  }
}

void ReplicaMasters::follow() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    at::Tensor master = trained_[i].second;
    if (has_master(i)) master.copy_(parameters_[i].second);
  }
}

NamedTensors ReplicaMasters::state_of(torch::optim::Optimizer& optimizer) const {
  NamedTensors state = lockstep::state_dict(optimizer);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (has_master(i)) state.emplace_back(master_name(trained_[i].first), trained_[i].second.detach());
  }
  return state;
}

void ReplicaMasters::load(torch::optim::Optimizer& optimizer, const NamedTensors& state) const {
  const at::NoGradGuard no_grad;
  NamedTensors own = state;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (!has_master(i)) continue;
    const auto found = std::find_if(own.begin(), own.end(), [&](const auto& entry) {
      return entry.first == master_name(trained_[i].first);
    });
    at::Tensor master = trained_[i].second;
    if (found == own.end()) {
      master.copy_(parameters_[i].second);  // a checkpoint without masters
    } else {
      master.copy_(found->second.view(master.sizes()));
      own.erase(found);
    }
  }
  lockstep::load_state_dict(optimizer, own);
}

}  // namespace lockstep::compat::deepspeed
