#include "lockstep/optim/lamb.h"

#include <torch/optim/adam.h>

#include <algorithm>
#include <cmath>

#include "lockstep/optim/chunks.h"
#include "lockstep/optim/norms.h"
#include "lockstep/optim/option_checks.h"
#include "lockstep/optim/typed_optimizer_body.h"

namespace lockstep::optim {
namespace {

bool is_excluded(const LAMBOptions& options, std::int64_t dims) { return options.exclude_1d() && dims <= 1; }

bool is_adapted(const LAMBOptions& options, std::int64_t dims) {
  return options.adapt() && !is_excluded(options, dims) &&
         (options.adapt_without_decay() || options.weight_decay() != 0);
}

double trust_ratio(const LAMBOptions& options, const SquareSums& sums) {
  const double of_param = std::min(std::sqrt(sums.param), options.max_weight_norm());
  const double of_update = std::sqrt(sums.update);
  if (of_param == 0 || of_update == 0) return 1;
  return std::clamp(of_param / of_update, options.min_trust_ratio(), options.max_trust_ratio());
}

LambCoefficients coefficients(const LAMBOptions& options, std::int64_t dims, double step,
                              double grad_factor) {
  const auto [beta1, beta2] = options.betas();
  LambCoefficients c;
  c.grad_factor = grad_factor;
  c.beta1 = beta1;
  c.beta2 = beta2;
  c.take = options.grad_averaging() ? 1 - beta1 : 1;
  if (options.bias_correction()) {
    c.mean_factor = 1 / (1 - std::pow(beta1, step));
    c.root_factor = 1 / std::sqrt(1 - std::pow(beta2, step));
  }
  c.eps = options.eps();
  c.weight_decay = is_excluded(options, dims) ? 0 : options.weight_decay();
  return c;
}

// One parameter of a step.
struct LambItem {
  const LAMBOptions* options;
  bool adapted;
  LambCoefficients c;
  NormShard shard;
  double rate(const SquareSums& sums) const {
    return options->lr() * (adapted ? trust_ratio(*options, sums) : 1);
  }
};

// The same formulas as the kernels', in tensor operations. Returns u.
at::Tensor step_moments(const LambCoefficients& c, const at::Tensor& param, const at::Tensor& grad,
                        const at::Tensor& mean, const at::Tensor& square) {
  const at::Tensor p = widened(param);
  const at::Tensor g = grad.to(p.scalar_type()) * c.grad_factor;
  mean.copy_(widened(mean) * c.beta1 + g * c.take);
  square.copy_(widened(square) * c.beta2 + g * g * (1 - c.beta2));
  return widened(mean) * c.mean_factor / (widened(square).sqrt() * c.root_factor + c.eps) +
         p * c.weight_decay;
}

// All parameters of a step. Moments come first, then the norms of all, then the parameters.
class LambSteps {
 public:
  void add(const LambItem& item, const at::Tensor& param, const at::Tensor& grad, const at::Tensor& mean,
           const at::Tensor& square) {
    if (const auto call = kernel_call(param, grad, {mean, square})) {
      calls_.push_back(*call);
      places_.push_back(items_.size());
      sums_.emplace_back();
    } else {
      const at::Tensor u = step_moments(item.c, param, grad, mean, square);
      plain_.push_back({items_.size(), param, u});
      sums_.push_back({square_sum({widened(param)}), square_sum({u})});
    }
    items_.push_back(item);
  }

  void run(const NormRanks& ranks, FileMemory* file) {
    run_moments(ranks, file);
    const auto apply = [&](const Chunk& chunk) {
      const LambItem& item = items_[places_[chunk.call]];
      step_kernels().lamb_apply(chunk.dtype, item.c, item.rate(sums_[places_[chunk.call]]), chunk.buffers,
                                chunk.count);
    };
    for_chunks(calls_, apply, file);
    for (const auto& [place, param, u] : plain_)
      param.copy_(widened(param) - u * items_[place].rate(sums_[place]));
  }

 private:
  struct Plain {
    std::size_t place;
    at::Tensor param, u;
  };

  // Moments, and the norms of whole parameters.
  void run_moments(const NormRanks& ranks, FileMemory* file) {
    std::vector<ChunkSquares> chunks(chunk_count(calls_));
    const auto moments = [&](const Chunk& chunk) {
      ChunkSquares& squares = chunks[chunk.index];
      squares = {.item = places_[chunk.call], .chunk = chunk.begin / CHUNK_ELEMENTS, .sums = {}};
      step_kernels().lamb_moments(chunk.dtype, items_[squares.item].c, chunk.buffers, chunk.count,
                                  squares.sums);
    };
    for_chunks(calls_, moments, file);
    std::vector<NormShard> shards;
    for (const LambItem& item : items_) shards.push_back(item.shard);
    add_up(sums_, chunks, shards, ranks);
  }

  std::vector<LambItem> items_;
  std::vector<SquareSums> sums_;  // by item
  std::vector<KernelCall> calls_;
  std::vector<std::size_t> places_;  // item of each call
  std::vector<Plain> plain_;         // parameters that the kernels do not take
};

}  // namespace

LAMBOptions::LAMBOptions(double lr) : lr_(lr) {}

LOCKSTEP_OPTIONS(LAMBOptions);

LAMB::LAMB(const std::vector<ParamGroup>& groups, const LAMBOptions& defaults)
    : TypedOptimizer(std::make_unique<LAMBOptions>(defaults)) {
  check(defaults);
  for (const ParamGroup& group : groups) add_param_group(group);
}
LAMB::LAMB(const std::vector<at::Tensor>& parameters, const LAMBOptions& defaults)
    : LAMB(std::vector<ParamGroup>{ParamGroup(parameters)}, defaults) {}
LAMB::LAMB(const NamedTensors& parameters, const LAMBOptions& defaults)
    : LAMB(std::vector<ParamGroup>(), defaults) {
  add_param_group(parameters);
}

void LAMB::check(const LAMBOptions& options) const {
  expect_adam_options(name(), options);
  expect_not_negative(name(), "max_weight_norm", options.max_weight_norm());
  expect_not_negative(name(), "max_grad_norm", options.max_grad_norm());
  expect_not_negative(name(), "min_trust_ratio", options.min_trust_ratio());
  if (!(options.min_trust_ratio() <= options.max_trust_ratio()))
    throw InvalidArgument("LAMB: min_trust_ratio is above max_trust_ratio");
}

double LAMB::grad_factor(const std::vector<Gradient>& gradients) const {
  const double most = static_cast<const LAMBOptions&>(*defaults_).max_grad_norm();
  if (std::isinf(most)) return 1;
  expect_norm_of_model(gradients);
  std::vector<at::Tensor> grads;
  std::vector<NormShard> shards;
  for (const Gradient& g : gradients) {
    grads.push_back(g.grad);
    shards.push_back(g.place());
  }
  const double norm = std::sqrt(square_sum(grads, shards, norms()));
  return norm > most ? most / norm : 1;
}

void LAMB::update(const std::vector<Gradient>& gradients) {
  const double factor = grad_factor(gradients);
  LambSteps steps;
  for (const Gradient& g : gradients) {
    const LAMBOptions& options = options_of(g.group);
    if (is_adapted(options, g.dims)) expect_norm_of_parameter(g);
    auto& state = state_of(g.key);
    if (!state.exp_avg().defined()) {
      state.exp_avg(state_memory().zeros_like(g.key));
      state.exp_avg_sq(state_memory().zeros_like(g.key));
    }
    state.step(state.step() + 1);
    const LambItem item = {&options, is_adapted(options, g.dims),
                           coefficients(options, g.dims, static_cast<double>(state.step()), factor),
                           g.place()};
    steps.add(item, g.param, g.grad, real_view(state.exp_avg()), real_view(state.exp_avg_sq()));
  }
  steps.run(norms(), state_memory().file());
}

template class TypedOptimizer<LAMBOptions, torch::optim::AdamParamState>;

}  // namespace lockstep::optim
