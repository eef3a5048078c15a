#include "lockstep/compat/horovod/optimizer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/compat/horovod/gradient_reduction.h"

namespace lockstep::compat::horovod {
namespace {

// The named parameters that the optimizer steps and that need a gradient.
NamedTensors stepped_parameters(const torch::optim::Optimizer& optimizer, const NamedTensors& named) {
  std::set<std::string> names;
  std::unordered_set<const void*> known;
  for (const auto& [name, tensor] : named) {
    if (!names.insert(name).second)
      throw InvalidArgument(str("DistributedOptimizer: two parameters have the name ", in_quotes(name)));
    known.insert(tensor.unsafeGetTensorImpl());
  }
  std::unordered_set<const void*> stepped;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      stepped.insert(parameter.unsafeGetTensorImpl());
      if (!known.contains(parameter.unsafeGetTensorImpl()))
        throw InvalidArgument("DistributedOptimizer: named_parameters lacks a parameter of the optimizer");
    }
  }
  NamedTensors found;
  for (const auto& [name, tensor] : named) {
    if (stepped.contains(tensor.unsafeGetTensorImpl()) && tensor.requires_grad())
      found.emplace_back(name, tensor);
  }
  return found;
}

void check(const DistributedOptimizerOptions& options) {
  if (options.gradient_predivide_factor != 1.0 && options.op != Average)
    throw InvalidArgument("DistributedOptimizer: gradient_predivide_factor is for the operator Average");
  if (options.backward_passes_per_step < 1)
    throw InvalidArgument("DistributedOptimizer: backward_passes_per_step must be at least 1");
  if (options.num_groups < 0) throw InvalidArgument("DistributedOptimizer: num_groups must not be negative");
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer,
                                           const NamedTensors& named_parameters,
                                           const DistributedOptimizerOptions& options)
    : optimizer_(optimizer),
      options_((check(options), options)),
      parameters_(stepped_parameters(optimizer, named_parameters)) {
  if (options_.op != Adasum) reduction_ = std::make_unique<GradientReduction>(parameters_, options_);
}

DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::synchronize() {
  if (reduction_ == nullptr) return;
  reduction_->synchronize();
  is_synchronized_ = true;
}

void DistributedOptimizer::step() {
  if (reduction_ == nullptr) return step_and_combine_changes();
  if (!skips_) {
    if (is_synchronized_)
      log(LogLevel::WARNING,
          "DistributedOptimizer: step() after synchronize() reduces the gradients a second time; call it "
          "while the guard of skip_synchronize() lives");
    reduction_->synchronize();
  }
  is_synchronized_ = false;
  optimizer_.step();
}

void DistributedOptimizer::zero_grad(bool set_to_none) {
  if (reduction_ != nullptr) {
    if (reduction_->is_under_way())
      throw InvalidArgument(
          "DistributedOptimizer: zero_grad() while gradients are being reduced; call step() or synchronize() "
          "first");
    reduction_->renew_hooks();
  }
  optimizer_.zero_grad(set_to_none);
}

std::shared_ptr<void> DistributedOptimizer::skip_synchronize() {
  if (reduction_ == nullptr)
    throw InvalidArgument("DistributedOptimizer: Adasum combines in step(), so there is nothing to skip");
  skips_ = true;
  return {this, [](DistributedOptimizer* optimizer) { optimizer->skips_ = false; }};
}

void DistributedOptimizer::set_backward_passes_per_step(int passes) {
  if (reduction_ != nullptr) reduction_->set_passes(passes);
}

// Adasum: the changes of this rank's own step are combined with those of the others.
void DistributedOptimizer::step_and_combine_changes() {
  std::vector<at::Tensor> before;
  for (const auto& [name, parameter] : parameters_) before.push_back(parameter.detach().clone());
  optimizer_.step();
  std::vector<Handle> handles;
  std::vector<at::Tensor> changes;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const at::Tensor change = parameters_[i].second.detach() - before[i];
    changes.push_back(options_.compression == Compression::fp16 && change.is_floating_point()
                          ? change.to(at::kHalf)
                          : change);
    handles.push_back(allreduce_async_(
        changes.back(),
        {.name = "delta." + parameters_[i].first, .op = Adasum, .process_set = options_.process_set}));
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    handles[i].synchronize();
    parameters_[i].second.detach().copy_(before[i] + changes[i].to(before[i].scalar_type()));
  }
}

}  // namespace lockstep::compat::horovod
