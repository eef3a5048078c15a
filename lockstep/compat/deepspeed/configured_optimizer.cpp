#include "lockstep/compat/deepspeed/configured_optimizer.h"

#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::compat::deepspeed {
namespace {

template <typename Options> Options adam_options(const OptimizerConfig& config) {
  return Options(config.lr)
      .betas(std::make_tuple(config.betas.first, config.betas.second))
      .eps(config.eps)
      .weight_decay(config.weight_decay)
      .amsgrad(config.amsgrad);
}

// As DeepSpeed's: every parameter decays and adapts.
optim::LAMBOptions lamb_options(const OptimizerConfig& config) {
  return optim::LAMBOptions(config.lr)
      .betas(std::make_tuple(config.betas.first, config.betas.second))
      .eps(config.eps)
      .weight_decay(config.weight_decay)
      .bias_correction(config.bias_correction)
      .min_trust_ratio(config.min_coeff)
      .max_trust_ratio(config.max_coeff)
      .adapt_without_decay(true)
      .exclude_1d(false);
}

optim::SGDOptions sgd_options(const OptimizerConfig& config) {
  return optim::SGDOptions(config.lr)
      .momentum(config.momentum)
      .dampening(config.dampening)
      .weight_decay(config.weight_decay)
      .nesterov(config.nesterov);
}

template <typename Optimizer, typename Options>
ClientOptimizer of_type(const OptimizerConfig& config,
                        const std::vector<ShardedGroup<OptimizerConfig>>& groups,
                        Options (*options)(const OptimizerConfig&)) {
  std::vector<ShardedGroup<Options>> own;
  for (const auto& group : groups) own.push_back({group.parameters, options(group.options)});
  return client_optimizer<Optimizer>(own, options(config));
}

}  // namespace

ClientOptimizer configured_optimizer(const OptimizerConfig& config,
                                     const std::vector<ShardedGroup<OptimizerConfig>>& groups) {
  switch (config.type) {
    case OptimizerType::ADAM: return of_type<optim::Adam>(config, groups, adam_options<optim::AdamOptions>);
    case OptimizerType::ADAMW:
      return of_type<optim::AdamW>(config, groups, adam_options<optim::AdamWOptions>);
    case OptimizerType::SGD: return of_type<optim::SGD>(config, groups, sgd_options);
    case OptimizerType::LAMB: return of_type<optim::LAMB>(config, groups, lamb_options);
  }
  return {};
}

}  // namespace lockstep::compat::deepspeed
