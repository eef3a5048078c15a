#include "lockstep/parallel/replicas/model_watch.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Module::parameters() copies names and tensors of the whole tree.
struct OwnParameters : torch::nn::Module {
  static const torch::OrderedDict<std::string, at::Tensor>& of(const torch::nn::Module& module) {
    return module.*(&OwnParameters::parameters_);
  }
};

bool contains(const std::vector<at::Tensor>& tensors, const at::Tensor& wanted) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.is_same(wanted); });
}

}  // namespace

ModelWatch::ModelWatch(const torch::nn::Module* module, const NamedTensors& parameters) : module_(module) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.requires_grad()) {
      trainable_.push_back(tensor);
    } else {
      frozen_.emplace_back(name, tensor);
    }
  }
  if (module_ != nullptr) record(*module_);
}

void ModelWatch::record(const torch::nn::Module& module) {
  Part part{
      .module = &module, .children = module.children(), .parameters = OwnParameters::of(module).values()};
  const auto children = part.children;
  parts_.push_back(std::move(part));
  for (const auto& child : children) record(*child);
}

bool ModelWatch::Part::is_same() const {
  const auto& own = OwnParameters::of(*module);
  const auto same = [](const at::Tensor& before, const auto& now) { return before.is_same(now.value()); };
  return std::equal(parameters.begin(), parameters.end(), own.begin(), own.end(), same) &&
         children == module->children();
}

std::optional<std::string> ModelWatch::change() {
  for (const auto& [name, tensor] : frozen_) {
    if (!tensor.requires_grad()) continue;
    return str(
        "parameter \"", printable(name),
        "\" did not require a gradient when the model was wrapped and does now: its gradient would stay on "
        "this rank. Wrap the model again after requires_grad_(true)");
  }
  const auto same = [](const Part& part) { return part.is_same(); };
  if (std::all_of(parts_.begin(), parts_.end(), same)) return std::nullopt;
  for (const auto& item : module_->named_parameters()) {
    if (!item.value().requires_grad() || contains(trainable_, item.value())) continue;
    return str(
        "parameter \"", printable(item.key()),
        "\" was registered after the model was wrapped, or replaces one that was: its gradient would stay on "
        "this rank. Wrap the model again after changing it, and build the optimiser after that");
  }
  parts_.clear();
  record(*module_);
  return std::nullopt;
}

}  // namespace lockstep
