#include "lockstep/compat/apex/amp.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <span>

#include "lockstep/amp/loss_scale.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/job.h"
#include "lockstep/job/unaveraged_steps.h"

namespace lockstep::compat::apex::amp {
namespace {

constexpr std::int64_t NONE = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void refuse_amp(const std::string& what) { throw InvalidArgument("apex amp: " + what); }

void refuse_with_o1(bool is_set, const char* name, const char* why) {
  if (is_set) refuse_amp(lockstep::str("with opt_level \"O1\" ", name, " must not be set: ", why));
}

LossScaleOptions scale_options(const InitializeOptions& options) {
  LossScaleOptions scale = apex_loss_scale();
  scale.min_scale = options.min_loss_scale;
  scale.max_scale = options.max_loss_scale;
  return scale;
}

}  // namespace

Properties properties_of(const std::string& opt_level, const InitializeOptions& options) {
  Properties p;
  if (!options.enabled) return p;
  if (opt_level == "O0") {
    p.cast_model_type = at::kFloat;
  } else if (opt_level == "O1") {
    refuse_with_o1(options.keep_batchnorm_fp32.has_value(), "keep_batchnorm_fp32",
                   "autocast keeps batch norms in float32 anyway");
    refuse_with_o1(options.master_weights.has_value(), "master_weights", "the parameters stay float32");
    refuse_with_o1(options.cast_model_type.has_value(), "cast_model_type", "the model is not cast");
    p = {.autocast = options.half, .loss_scale = 0, .cast_model_outputs = at::kFloat};
  } else if (opt_level == "O2") {
    p = {.cast_model_type = options.half,
         .keep_batchnorm_fp32 = true,
         .master_weights = true,
         .loss_scale = 0,
         .cast_model_outputs = at::kFloat};
  } else if (opt_level == "O3") {
    p = {.cast_model_type = options.half, .cast_model_outputs = at::kFloat};
  } else {
    refuse_amp(lockstep::str("opt_level is \"", printable(opt_level),
                             "\"; it is \"O0\", \"O1\", \"O2\" or \"O3\", with the letter O, not zero"));
  }
  if (options.cast_model_type) p.cast_model_type = options.cast_model_type;
  p.keep_batchnorm_fp32 = options.keep_batchnorm_fp32.value_or(p.keep_batchnorm_fp32);
  p.master_weights = options.master_weights.value_or(p.master_weights);
  p.loss_scale = options.loss_scale.value_or(p.loss_scale);
  if (options.cast_model_outputs) p.cast_model_outputs = options.cast_model_outputs;
  return p;
}

at::DeviceType device_of(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? at::kCPU : parameters.front().device().type();
}

at::Tensor cast_floating(const at::Tensor& tensor, std::optional<at::ScalarType> dtype) {
  return dtype && tensor.defined() && tensor.is_floating_point() ? tensor.to(*dtype) : tensor;
}

void cast_model(torch::nn::Module& module, const Properties& properties) {
  if (!properties.cast_model_type) return;
  const c10::NoGradGuard no_grad;
  for (const auto& part : module.modules(/*include_self=*/true)) {
    const bool is_batchnorm = dynamic_cast<torch::nn::BatchNorm1dImpl*>(part.get()) != nullptr ||
                              dynamic_cast<torch::nn::BatchNorm2dImpl*>(part.get()) != nullptr ||
                              dynamic_cast<torch::nn::BatchNorm3dImpl*>(part.get()) != nullptr;
    if (is_batchnorm && properties.keep_batchnorm_fp32) continue;
    const auto cast = [&](const at::Tensor& tensor) {
      tensor.set_data(cast_floating(tensor, properties.cast_model_type));
    };
    for (const at::Tensor& parameter : part->parameters(/*recurse=*/false)) cast(parameter);
    for (const at::Tensor& buffer : part->buffers(/*recurse=*/false)) cast(buffer);
  }
}

// ---- optimiser

struct Optimizer::State {
  struct Parameter {
    at::Tensor model;
    at::Tensor master;  // undefined if the optimiser steps the model's own parameter
  };
  struct Loss {
    LossScale scale;
    std::optional<std::int64_t> overflow;  // on this rank: the first parameter that was not finite
    bool used = false;                     // since the last step
  };

  bool is_dynamic() const { return properties.loss_scale == 0; }
  double scale_of(int loss_id) const {
    return is_dynamic() ? losses[static_cast<std::size_t>(loss_id)].scale.value() : properties.loss_scale;
  }
  std::optional<ProcessGroup> group() const {
    if (options.process_group) return options.process_group;
    return is_initialized() ? std::optional(world()) : std::nullopt;
  }
  void multiply_gradients(double factor);
  void unscale(int loss_id);
  bool agree_to_step();
  void note(int loss_id, std::int64_t found, const std::optional<ProcessGroup>& group) const;

  torch::optim::Optimizer& optimizer;
  const Properties properties;
  const InitializeOptions options;
  std::vector<Parameter> parameters;
  std::vector<Loss> losses;
  double on_gradients = 1;  // present factor of the model's gradients
  std::exception_ptr failure;
};

Optimizer::Optimizer(torch::optim::Optimizer& optimizer, const Properties& properties,
                     const InitializeOptions& options)
    : state_(std::make_shared<State>(
          State{.optimizer = optimizer, .properties = properties, .options = options})) {
  if (options.process_group) options.process_group->require_member("apex amp::initialize");
  if (options.num_losses < 1)
    refuse_amp(lockstep::str("num_losses is ", options.num_losses, "; it must be at least 1"));
  for (int i = 0; i < options.num_losses; ++i)
    state_->losses.push_back({LossScale(scale_options(options)), {}});
  const c10::NoGradGuard no_grad;
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      State::Parameter one{.model = parameter, .master = {}};
      if (options.enabled && parameter.scalar_type() != at::kFloat) {
        refuse_amp(lockstep::str("a parameter of the optimiser is ", parameter.scalar_type(),
                                 "; initialize() takes float32 models and casts them itself"));
      }
      if (properties.master_weights) {
        one.master = parameter.detach().clone().set_requires_grad(parameter.requires_grad());
        auto& states = optimizer.state();  // momentum and other state move with the values
        if (auto old = states.find(parameter.unsafeGetTensorImpl()); old != states.end()) {
          auto kept = std::move(old->second);
          states.erase(old);
          states[one.master.unsafeGetTensorImpl()] = std::move(kept);
        }
        parameter = one.master;
      }
      state_->parameters.push_back(std::move(one));
    }
  }
}

torch::optim::Optimizer& Optimizer::get() const { return state_->optimizer; }

std::vector<torch::optim::OptimizerParamGroup>& Optimizer::param_groups() {
  return state_->optimizer.param_groups();
}

double Optimizer::loss_scale(int loss_id) const { return state_->scale_of(loss_id); }

void Optimizer::zero_grad(bool set_to_none) {
  state_->optimizer.zero_grad(set_to_none);
  for (const auto& one : state_->parameters) {
    if (one.master.defined()) one.model.mutable_grad() = at::Tensor();
  }
  state_->on_gradients = 1;
}

void Optimizer::State::multiply_gradients(double factor) {
  if (factor == 1) return;
  const c10::NoGradGuard no_grad;
  for (const Parameter& one : parameters) {
    if (one.model.grad().defined()) one.model.mutable_grad().mul_(factor);
  }
}

// If there are masters, their gradients take over the model's.
void Optimizer::State::unscale(int loss_id) {
  Loss& loss = losses[static_cast<std::size_t>(loss_id)];
  const c10::NoGradGuard no_grad;
  const auto inverse = static_cast<float>(1 / on_gradients);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& one = parameters[i];
    if (!one.model.grad().defined()) continue;
    at::Tensor grad = one.master.defined() ? one.model.grad().to(one.master.scalar_type()) : one.model.grad();
    at::Tensor values = grad.is_sparse() ? grad._values() : grad;
    const auto number = values.options().dtype(at::kFloat);
    at::Tensor found = at::full({}, 0, number);
    at::_amp_foreach_non_finite_check_and_unscale_(values, found, at::full({}, inverse, number));
    if (is_dynamic() && found.item<float>() != 0) {
      if (!loss.overflow) loss.overflow = static_cast<std::int64_t>(i);
      values.zero_();  // the step is skipped; the next loss must not be blamed
    }
    if (!one.master.defined()) continue;
    at::Tensor& sum = one.master.mutable_grad();
    sum = sum.defined() ? sum.add_(grad) : grad;
    one.model.mutable_grad() = at::Tensor();
  }
  on_gradients = 1;
}

void Optimizer::State::note(int loss_id, std::int64_t found, const std::optional<ProcessGroup>& group) const {
  const std::int64_t size = group ? group->size() : 1;
  log(LogLevel::INFO,
      lockstep::str("apex amp: gradient overflow in parameter ", found / size, " of the optimiser on rank ",
                    found % size, ". Skipping step, loss scaler ", loss_id, " goes to ", scale_of(loss_id)));
}

bool Optimizer::State::agree_to_step() {
  const auto together = group();
  std::vector<std::int64_t> first;
  for (const Loss& loss : losses) {
    const std::int64_t size = together ? together->size() : 1;
    first.push_back(loss.overflow ? *loss.overflow * size + (together ? together->rank() : 0) : NONE);
  }
  const auto scale = static_cast<float>(scale_of(0));
  const Acting acting(Purpose::OVERFLOWS, "", std::bit_cast<std::int32_t>(scale));
  if (together && together->size() > 1) comm::all_reduce(*together, std::span(first), ReduceOp::MIN).wait();
  bool clean = true;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    Loss& loss = losses[i];
    if (loss.used) loss.scale.update(first[i] != NONE);
    if (first[i] != NONE) note(static_cast<int>(i), first[i], together);
    clean = clean && first[i] == NONE;
    loss.overflow.reset();
    loss.used = false;
  }
  return clean;
}

bool Optimizer::step() {
  State& state = *state_;
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
  if (state.on_gradients != 1) {
    refuse_amp(
        "step() while the gradients are still scaled: the last scale_loss() before it must not "
        "delay_unscale");
  }
  const bool any_used =
      std::any_of(state.losses.begin(), state.losses.end(), [](const auto& loss) { return loss.used; });
  if (any_used && state.is_dynamic() && !state.agree_to_step()) return false;
  state.optimizer.step();
  note_step("apex amp's optimiser");
  const c10::NoGradGuard no_grad;
  for (const auto& one : state.parameters) {
    if (one.master.defined()) one.model.copy_(one.master);
  }
  return true;
}

// ---- scaled loss

ScaledLoss::ScaledLoss(const at::Tensor& loss, const Optimizer& optimizer, int loss_id, bool delay_unscale)
    : optimizer_(optimizer),
      loss_id_(loss_id),
      delay_unscale_(delay_unscale),
      exceptions_before_(std::uncaught_exceptions()) {
  Optimizer::State& state = optimizer_.state();
  if (loss_id < 0 || loss_id >= static_cast<int>(state.losses.size())) {
    refuse_amp(lockstep::str("loss_id is ", loss_id, " of ", state.losses.size(),
                             " losses; see num_losses of initialize()"));
  }
  const double scale = state.scale_of(loss_id);
  // Scales the earlier gradients, too: multiplying by a power of two and back is exact.
  state.multiply_gradients(scale / state.on_gradients);
  state.on_gradients = scale;
  state.losses[static_cast<std::size_t>(loss_id)].used = true;
  scaled_ = loss.to(at::kFloat).mul(at::full({}, scale, loss.options().dtype(at::kFloat)));
}

ScaledLoss::~ScaledLoss() {
  if (delay_unscale_ || std::uncaught_exceptions() > exceptions_before_) return;
  Optimizer::State& state = optimizer_.state();
  try {
    const bool nothing_to_do =
        !state.is_dynamic() && state.on_gradients == 1 && !state.properties.master_weights;
    if (!nothing_to_do) state.unscale(loss_id_);
  } catch (...) {
    state.failure = std::current_exception();
  }
}

std::vector<at::Tensor> masters_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& one : optimizer.state().parameters) {
    if (one.master.defined()) all.push_back(one.master);
  }
  return all;
}

std::vector<at::Tensor> master_params(const Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& one : optimizer.state().parameters)
    all.push_back(one.master.defined() ? one.master : one.model);
  return all;
}

NamedTensors state_dict(const Optimizer& optimizer) {
  NamedTensors state;
  const auto& losses = optimizer.state().losses;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const std::string name = lockstep::str("loss_scaler", i);
    state.emplace_back(name + ".loss_scale",
                       at::scalar_tensor(optimizer.loss_scale(static_cast<int>(i)), at::kDouble));
    state.emplace_back(name + ".unskipped", at::scalar_tensor(losses[i].scale.growth_tracker(), at::kLong));
  }
  return state;
}

void load_state_dict(const Optimizer& optimizer, const NamedTensors& state) {
  const std::map<std::string, at::Tensor> entries(state.begin(), state.end());
  auto& losses = optimizer.state().losses;
  for (const bool check : {true, false}) {  // nothing changes unless all entries exist
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const auto scale = entries.find(lockstep::str("loss_scaler", i, ".loss_scale"));
      const auto unskipped = entries.find(lockstep::str("loss_scaler", i, ".unskipped"));
      if (scale == entries.end() || unskipped == entries.end())
        refuse_amp(
            lockstep::str("the state has no loss_scaler", i, ", but there are ", losses.size(), " losses"));
      if (check) continue;
      losses[i].scale.set(scale->second.item<double>());
      losses[i].scale.set_trackers(unskipped->second.item<std::int64_t>(), 1);
    }
  }
}

}  // namespace lockstep::compat::apex::amp
