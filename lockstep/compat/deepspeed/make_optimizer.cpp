#include "lockstep/compat/deepspeed/make_optimizer.h"

#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::compat::deepspeed {
namespace {

using Made = std::unique_ptr<torch::optim::Optimizer>;

template <typename Optimizer, typename Options>
Made made(const NamedTensors& parameters, const Options& options) {
  return std::make_unique<Optimizer>(parameters, options);
}

template <typename Optimizer, typename Options>
Made made(ShardedDataParallelBase& model, const Options& options) {
  return Made(new ShardedOptimizer<Optimizer>(model.optimizer<Optimizer>(options)));
}

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

template <typename Over> Made make_over(const OptimizerConfig& config, Over& over) {
  switch (config.type) {
    case OptimizerType::ADAM: return made<optim::Adam>(over, adam_options<optim::AdamOptions>(config));
    case OptimizerType::ADAMW: return made<optim::AdamW>(over, adam_options<optim::AdamWOptions>(config));
    case OptimizerType::SGD:
      return made<optim::SGD>(over, optim::SGDOptions(config.lr)
                                        .momentum(config.momentum)
                                        .dampening(config.dampening)
                                        .weight_decay(config.weight_decay)
                                        .nesterov(config.nesterov));
    case OptimizerType::LAMB: return made<optim::LAMB>(over, lamb_options(config));
  }
  return nullptr;
}

}  // namespace

Made make_optimizer(const OptimizerConfig& config, const NamedTensors& parameters) {
  return make_over(config, parameters);
}

Made make_optimizer(const OptimizerConfig& config, ShardedDataParallelBase& model) {
  return make_over(config, model);
}

}  // namespace lockstep::compat::deepspeed
