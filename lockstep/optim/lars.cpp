#include "lockstep/optim/lars.h"

#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>

#include "lockstep/optim/norms.h"
#include "lockstep/optim/option_checks.h"
#include "lockstep/optim/sgd_step.h"
#include "lockstep/optim/typed_optimizer_body.h"

namespace lockstep::optim {
namespace {

bool is_excluded(const LARSOptions& options, std::int64_t dims) { return options.exclude_1d() && dims <= 1; }

double decay_of(const LARSOptions& options, std::int64_t dims) {
  return is_excluded(options, dims) ? 0 : options.weight_decay();
}

// `sums` are those of the parameter and, with joint_norm, of gradient and decay together.
double trust_ratio(const LARSOptions& options, const SquareSums& sums) {
  const double of_param = std::sqrt(sums.param);
  const double of_grad = std::sqrt(sums.update);
  if (of_param == 0 || of_grad == 0) return 1;
  const double apart = options.joint_norm() ? 0 : options.weight_decay() * of_param;
  const double ratio = options.trust_coefficient() * of_param / (of_grad + apart + options.eps());
  return options.clip() ? std::min(ratio / options.lr(), 1.0) : ratio;
}

SgdCoefficients coefficients(const LARSOptions& options, std::int64_t dims, double ratio) {
  SgdCoefficients c;
  c.weight_decay = decay_of(options, dims);
  c.has_momentum = options.momentum() != 0;
  c.momentum = options.momentum();
  c.nesterov = options.nesterov();
  c.lr = options.lr_in_momentum() ? 1 : options.lr();
  c.take = c.direct = options.lr_in_momentum() ? options.lr() * ratio : ratio;
  return c;
}

}  // namespace

LARSOptions::LARSOptions(double lr) : lr_(lr) {}

LOCKSTEP_OPTIONS(LARSOptions);

LARS::LARS(const std::vector<ParamGroup>& groups, const LARSOptions& defaults)
    : TypedOptimizer(std::make_unique<LARSOptions>(defaults)) {
  check(defaults);
  for (const ParamGroup& group : groups) add_param_group(group);
}
LARS::LARS(const std::vector<at::Tensor>& parameters, const LARSOptions& defaults)
    : LARS(std::vector<ParamGroup>{ParamGroup(parameters)}, defaults) {}
LARS::LARS(const NamedTensors& parameters, const LARSOptions& defaults)
    : LARS(std::vector<ParamGroup>(), defaults) {
  add_param_group(parameters);
}

void LARS::check(const LARSOptions& options) const {
  expect_not_negative(name(), "lr", options.lr());
  expect_not_negative(name(), "momentum", options.momentum());
  expect_not_negative(name(), "weight_decay", options.weight_decay());
  expect_not_negative(name(), "trust_coefficient", options.trust_coefficient());
  expect_not_negative(name(), "eps", options.eps());
  if (options.nesterov() && options.momentum() <= 0) throw InvalidArgument("LARS: nesterov needs a momentum");
}

void LARS::update(const std::vector<Gradient>& gradients) {
  std::vector<NormItem> items;
  std::vector<std::size_t> adapted;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Gradient& g = gradients[i];
    const LARSOptions& options = options_of(g.group);
    if (!options.adapt() || is_excluded(options, g.dims)) continue;
    expect_norm_of_parameter(g);
    items.push_back({g.param, g.grad, options.joint_norm() ? options.weight_decay() : 0, g.place()});
    adapted.push_back(i);
  }
  const std::vector<SquareSums> sums = square_sums(items, norms());
  std::vector<double> ratios(gradients.size(), 1);
  for (std::size_t i = 0; i < adapted.size(); ++i)
    ratios[adapted[i]] = trust_ratio(options_of(gradients[adapted[i]].group), sums[i]);

  SgdSteps steps;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Gradient& g = gradients[i];
    const SgdCoefficients c = coefficients(options_of(g.group), g.dims, ratios[i]);
    at::Tensor buffer;
    if (c.has_momentum)
      buffer = real_view(zeros_like_once(state_of(g.key).momentum_buffer(), g.key, state_memory()));
    steps.add(c, g.param, g.grad, buffer);
  }
  steps.run(state_memory().file());
}

template class TypedOptimizer<LARSOptions, torch::optim::SGDParamState>;

}  // namespace lockstep::optim
