#include "lockstep/optim/adam.h"

#include <ATen/ops/maximum.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <cmath>

#include "lockstep/optim/chunks.h"
#include "lockstep/optim/fused_steps.h"
#include "lockstep/optim/option_checks.h"
#include "lockstep/optim/typed_optimizer_body.h"

namespace lockstep::optim {
namespace {

// The same formulas as the kernel's, in tensor operations.
void step_plainly(const AdamCoefficients& c, const at::Tensor& param, const at::Tensor& grad,
                  const at::Tensor& mean, const at::Tensor& square, const at::Tensor& largest) {
  const at::Tensor p = widened(param);
  at::Tensor g = grad.to(p.scalar_type()) * c.sign;
  if (c.weight_decay != 0) g = g + p * c.weight_decay;
  const at::Tensor m = widened(mean) * c.beta1 + g * (1 - c.beta1);
  const at::Tensor v = widened(square) * c.beta2 + g * g * (1 - c.beta2);
  mean.copy_(m);
  square.copy_(v);
  at::Tensor x = v;
  if (c.amsgrad) {
    x = at::maximum(widened(largest), v);
    largest.copy_(x);
  }
  param.copy_(p * c.keep - m * c.step_size / (x.sqrt() * c.root_factor + c.eps));
}

template <typename Options>
AdamCoefficients coefficients(const Options& options, bool decoupled, double step) {
  const auto [beta1, beta2] = options.betas();
  AdamCoefficients c;
  c.amsgrad = options.amsgrad();
  c.sign = options.maximize() ? -1 : 1;
  c.weight_decay = decoupled ? 0 : options.weight_decay();
  c.keep = decoupled ? 1 - options.lr() * options.weight_decay() : 1;
  c.beta1 = beta1;
  c.beta2 = beta2;
  c.step_size = options.lr() / (1 - std::pow(beta1, step));
  c.root_factor = 1 / std::sqrt(1 - std::pow(beta2, step));
  c.eps = options.eps();
  return c;
}

template <typename Options>
FusedAdam fused_settings(const Options& options, bool decoupled, std::int64_t step) {
  const auto [beta1, beta2] = options.betas();
  return {.decoupled = decoupled,
          .amsgrad = options.amsgrad(),
          .maximize = options.maximize(),
          .lr = options.lr(),
          .beta1 = beta1,
          .beta2 = beta2,
          .weight_decay = options.weight_decay(),
          .eps = options.eps(),
          .step = step};
}

class AdamSteps {
 public:
  template <typename Options, typename State>
  void add(const StateMemory& memory, const Options& options, bool decoupled, State& state,
           const at::Tensor& key, const at::Tensor& param, const at::Tensor& grad,
           const GradientParts* parts) {
    if (!state.exp_avg().defined()) {
      state.exp_avg(memory.zeros_like(key));
      state.exp_avg_sq(memory.zeros_like(key));
    }
    if (options.amsgrad() && !state.max_exp_avg_sq().defined()) state.max_exp_avg_sq(memory.zeros_like(key));
    state.step(state.step() + 1);
    AdamCoefficients c = coefficients(options, decoupled, static_cast<double>(state.step()));
    if (parts != nullptr) c.sign *= parts->factor;
    const at::Tensor mean = real_view(state.exp_avg());
    const at::Tensor square = real_view(state.exp_avg_sq());
    const at::Tensor largest = c.amsgrad ? real_view(state.max_exp_avg_sq()) : at::Tensor();
    const auto call = c.amsgrad ? kernel_call(param, grad, {mean, square, largest}, parts)
                                : kernel_call(param, grad, {mean, square}, parts);
    if (!call) {
      std::vector<at::Tensor> tensors = {param, grad, mean, square};
      if (c.amsgrad) tensors.push_back(largest);
      if (parts == nullptr && fused_.add(fused_settings(options, decoupled, state.step()), tensors)) return;
      step_plainly(c, param, parts == nullptr ? grad : average_of(*parts, param), mean, square, largest);
      if (parts != nullptr) write_rounded(*parts, param);
      return;
    }
    calls_.push_back(*call);
    coefficients_.push_back(c);
  }

  void run(FileMemory* file) const {
    fused_.run();
    const auto kernel = step_kernels().adam;
    for_chunks(
        calls_,
        [&](const Chunk& chunk) {
          kernel(chunk.dtype, coefficients_[chunk.call], chunk.buffers, chunk.count);
        },
        file);
  }

 private:
  std::vector<KernelCall> calls_;
  std::vector<AdamCoefficients> coefficients_;
  FusedSteps<FusedAdam> fused_;
};

}  // namespace

AdamOptions::AdamOptions(double lr) : lr_(lr) {}
AdamOptions::AdamOptions(const torch::optim::AdamOptions& other)
    : lr_(other.lr()),
      betas_(other.betas()),
      eps_(other.eps()),
      weight_decay_(other.weight_decay()),
      amsgrad_(other.amsgrad()) {}

AdamWOptions::AdamWOptions(double lr) : lr_(lr) {}
AdamWOptions::AdamWOptions(const torch::optim::AdamWOptions& other)
    : lr_(other.lr()),
      betas_(other.betas()),
      eps_(other.eps()),
      weight_decay_(other.weight_decay()),
      amsgrad_(other.amsgrad()) {}

LOCKSTEP_OPTIONS(AdamOptions);
LOCKSTEP_OPTIONS(AdamWOptions);

Adam::Adam(const std::vector<ParamGroup>& groups, const AdamOptions& defaults)
    : TypedOptimizer(std::make_unique<AdamOptions>(defaults)) {
  check(defaults);
  for (const ParamGroup& group : groups) add_param_group(group);
}
Adam::Adam(const std::vector<at::Tensor>& parameters, const AdamOptions& defaults)
    : Adam(std::vector<ParamGroup>{ParamGroup(parameters)}, defaults) {}
Adam::Adam(const NamedTensors& parameters, const AdamOptions& defaults)
    : Adam(std::vector<ParamGroup>(), defaults) {
  add_param_group(parameters);
}

AdamW::AdamW(const std::vector<ParamGroup>& groups, const AdamWOptions& defaults)
    : TypedOptimizer(std::make_unique<AdamWOptions>(defaults)) {
  check(defaults);
  for (const ParamGroup& group : groups) add_param_group(group);
}
AdamW::AdamW(const std::vector<at::Tensor>& parameters, const AdamWOptions& defaults)
    : AdamW(std::vector<ParamGroup>{ParamGroup(parameters)}, defaults) {}
AdamW::AdamW(const NamedTensors& parameters, const AdamWOptions& defaults)
    : AdamW(std::vector<ParamGroup>(), defaults) {
  add_param_group(parameters);
}

void Adam::check(const AdamOptions& options) const { expect_adam_options(name(), options); }
void AdamW::check(const AdamWOptions& options) const { expect_adam_options(name(), options); }

void Adam::update(const std::vector<Gradient>& gradients) {
  AdamSteps steps;
  for (const Gradient& g : gradients)
    steps.add(state_memory(), options_of(g.group), /*decoupled=*/false, state_of(g.key), g.key, g.param,
              g.grad, g.parts);
  steps.run(state_memory().file());
}
void AdamW::update(const std::vector<Gradient>& gradients) {
  AdamSteps steps;
  for (const Gradient& g : gradients)
    steps.add(state_memory(), options_of(g.group), /*decoupled=*/true, state_of(g.key), g.key, g.param,
              g.grad, g.parts);
  steps.run(state_memory().file());
}

template class TypedOptimizer<AdamOptions, torch::optim::AdamParamState>;
template class TypedOptimizer<AdamWOptions, torch::optim::AdamWParamState>;

}  // namespace lockstep::optim
