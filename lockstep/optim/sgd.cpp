#include "lockstep/optim/sgd.h"

#include <torch/optim/sgd.h>

#include <cmath>

#include "lockstep/optim/option_checks.h"
#include "lockstep/optim/sgd_step.h"
#include "lockstep/optim/typed_optimizer_body.h"

namespace lockstep::optim {
namespace {

// The same formulas as the kernel's, in tensor operations.
void step_plainly(const SgdCoefficients& c, const at::Tensor& param, const at::Tensor& grad,
                  const at::Tensor& buffer) {
  const at::Tensor p = widened(param);
  at::Tensor g = grad.to(p.scalar_type()) * c.sign;
  if (c.weight_decay != 0) g = g + p * c.weight_decay;
  at::Tensor update = g * c.direct;
  if (c.has_momentum) {
    const at::Tensor moved = widened(buffer) * c.momentum + g * c.take;
    buffer.copy_(moved);
    update = c.nesterov ? update + moved * c.momentum : moved;
  }
  param.copy_(p - update * c.lr);
}

}  // namespace

void SgdSteps::add(const SgdCoefficients& coefficients, const at::Tensor& param, const at::Tensor& grad,
                   const at::Tensor& buffer, const GradientParts* parts) {
  const auto call =
      buffer.defined() ? kernel_call(param, grad, {buffer}, parts) : kernel_call(param, grad, {}, parts);
  if (!call) {
    if (parts == nullptr && add_fused(coefficients, param, grad, buffer)) return;
    step_plainly(coefficients, param, parts == nullptr ? grad : average_of(*parts, param), buffer);
    if (parts != nullptr) write_rounded(*parts, param);
    return;
  }
  calls_.push_back(*call);
  coefficients_.push_back(coefficients);
}

bool SgdSteps::add_fused(const SgdCoefficients& c, const at::Tensor& param, const at::Tensor& grad,
                         const at::Tensor& buffer) {
  if (c.direct != 1 || std::abs(c.sign) != 1) return false;
  std::vector<at::Tensor> tensors = {param, grad};
  if (c.has_momentum) tensors.push_back(buffer);
  return fused_.add({.nesterov = c.nesterov,
                     .maximize = c.sign < 0,
                     .lr = c.lr,
                     .weight_decay = c.weight_decay,
                     .momentum = c.momentum,
                     .dampening = 1 - c.take},
                    tensors);
}

void SgdSteps::run(FileMemory* file) const {
  fused_.run();
  const auto kernel = step_kernels().sgd;
  for_chunks(
      calls_,
      [&](const Chunk& chunk) { kernel(chunk.dtype, coefficients_[chunk.call], chunk.buffers, chunk.count); },
      file);
}

at::Tensor& zeros_like_once(at::Tensor& state, const at::Tensor& parameter, const StateMemory& memory) {
  if (!state.defined()) state = memory.zeros_like(parameter);
  return state;
}

SGDOptions::SGDOptions(double lr) : lr_(lr) {}
SGDOptions::SGDOptions(const torch::optim::SGDOptions& other)
    : lr_(other.lr()),
      momentum_(other.momentum()),
      dampening_(other.dampening()),
      weight_decay_(other.weight_decay()),
      nesterov_(other.nesterov()) {}

LOCKSTEP_OPTIONS(SGDOptions);

SGD::SGD(const std::vector<ParamGroup>& groups, const SGDOptions& defaults)
    : TypedOptimizer(std::make_unique<SGDOptions>(defaults)) {
  check(defaults);
  for (const ParamGroup& group : groups) add_param_group(group);
}
SGD::SGD(const std::vector<at::Tensor>& parameters, const SGDOptions& defaults)
    : SGD(std::vector<ParamGroup>{ParamGroup(parameters)}, defaults) {}
SGD::SGD(const NamedTensors& parameters, const SGDOptions& defaults)
    : SGD(std::vector<ParamGroup>(), defaults) {
  add_param_group(parameters);
}

void SGD::check(const SGDOptions& options) const {
  expect_not_negative(name(), "lr", options.lr());
  expect_not_negative(name(), "momentum", options.momentum());
  expect_not_negative(name(), "weight_decay", options.weight_decay());
  if (options.nesterov() && (options.momentum() <= 0 || options.dampening() != 0))
    throw InvalidArgument("SGD: nesterov needs a momentum and no dampening");
}

void SGD::update(const std::vector<Gradient>& gradients) {
  SgdSteps steps;
  for (const Gradient& g : gradients) {
    const SGDOptions& options = options_of(g.group);
    SgdCoefficients c;
    c.lr = options.lr();
    c.sign = (options.maximize() ? -1 : 1) * (g.parts == nullptr ? 1 : g.parts->factor);
    c.weight_decay = options.weight_decay();
    c.has_momentum = options.momentum() != 0;
    at::Tensor buffer;
    if (c.has_momentum) {
      c.momentum = options.momentum();
      c.nesterov = options.nesterov();
      at::Tensor& own = state_of(g.key).momentum_buffer();
      c.take = own.defined() ? 1 - options.dampening() : 1;
      buffer = real_view(zeros_like_once(own, g.key, state_memory()));
    }
    steps.add(c, g.param, g.grad, buffer, g.parts);
  }
  steps.run(state_memory().file());
}

template class TypedOptimizer<SGDOptions, torch::optim::SGDParamState>;

}  // namespace lockstep::optim
