#include "lockstep/amp/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/job.h"
#include "lockstep/job/unaveraged_steps.h"
#include "lockstep/tensor/pending_gradients.h"

namespace lockstep {
namespace {

constexpr std::int64_t NO_GRADIENT = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void refuse_scaler(const std::string& what) { throw InvalidArgument("GradScaler: " + what); }

std::vector<at::Tensor> parameters_of(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (auto& group : optimizer.param_groups()) {
    all.insert(all.end(), group.params().begin(), group.params().end());
  }
  return all;
}

// Returns the dense values of a gradient. The duplicates of a sparse float16 gradient are added up first,
// because that may overflow.
at::Tensor values_of(const at::Tensor& parameter) {
  at::Tensor& grad = parameter.mutable_grad();
  if (!grad.is_sparse()) return grad;
  if (grad.scalar_type() == at::kHalf) grad = grad.coalesce();
  return grad._values();
}

// Tensors with the same key may be in one kernel call.
using DeviceAndDtype = std::pair<at::Device, at::ScalarType>;
struct KindLess {
  bool operator()(const DeviceAndDtype& a, const DeviceAndDtype& b) const {
    return std::pair(a.first.str(), a.second) < std::pair(b.first.str(), b.second);
  }
};

std::int64_t first_not_finite(const std::vector<at::Tensor>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].defined() && !at::isfinite(values[i]).all().item<bool>())
      return static_cast<std::int64_t>(i);
  }
  return NO_GRADIENT;  // an inverse scale that is not finite
}

}  // namespace

std::optional<std::int64_t> unscale_gradients(torch::optim::Optimizer& optimizer, double factor,
                                              bool allow_half, bool* none_found) {
  if (auto* const pending = dynamic_cast<PendingGradients*>(&optimizer)) pending->make_gradients();
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> values;  // one per parameter, undefined without a gradient
  std::map<DeviceAndDtype, std::vector<at::Tensor>, KindLess> kinds;
  for (const at::Tensor& parameter : parameters_of(optimizer)) {
    values.emplace_back();
    if (!parameter.grad().defined()) continue;
    if (!allow_half && parameter.grad().scalar_type() == at::kHalf) {
      refuse_scaler(
          "Attempting to unscale FP16 gradients. Parameters stay float32 under autocast; do not convert the "
          "model itself to float16");
    }
    values.back() = values_of(parameter);
    kinds[{values.back().device(), values.back().scalar_type()}].push_back(values.back());
  }
  if (none_found != nullptr) *none_found = kinds.empty();
  bool overflow = false;
  for (auto& [kind, gradients] : kinds) {
    const auto number = at::TensorOptions().dtype(at::kFloat).device(kind.first);
    at::Tensor found = at::full({}, 0, number);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, at::full({}, factor, number));
    overflow = overflow || found.item<float>() != 0;
  }
  if (!overflow) return std::nullopt;
  return std::min<std::int64_t>(first_not_finite(values), static_cast<std::int64_t>(values.size()) - 1);
}

std::string parameter_name(torch::optim::Optimizer& optimizer, std::int64_t index,
                           const NamedTensors& names) {
  auto in_group = static_cast<std::size_t>(index);
  auto& groups = optimizer.param_groups();
  std::size_t group = 0;
  while (group < groups.size() && in_group >= groups[group].params().size())
    in_group -= groups[group++].params().size();
  if (group == groups.size()) return str("parameter ", index);
  const at::Tensor& parameter = groups[group].params()[in_group];
  for (const auto& [name, tensor] : names) {
    if (tensor.is_same(parameter)) return name;
  }
  return lockstep::str("parameter ", in_group, " of group ", group, " (", parameter.sizes(), ", ",
                       parameter.scalar_type(), ")");
}

std::optional<RankedParameter> first_of_all_ranks(const std::optional<std::int64_t>& found,
                                                  const std::optional<ProcessGroup>& group, double scale) {
  const bool together = group.has_value();
  const Acting acting(Purpose::OVERFLOWS, "", std::bit_cast<std::int32_t>(static_cast<float>(scale)));
  const std::int64_t size = together ? group->size() : 1;
  std::int64_t first = found ? *found * size + (together ? group->rank() : 0) : NO_GRADIENT;
  if (size > 1) comm::all_reduce(*group, std::span(&first, 1), ReduceOp::MIN).wait();
  if (first == NO_GRADIENT) return std::nullopt;
  return RankedParameter{.index = first / size, .rank = static_cast<int>(first % size)};
}

GradScaler::GradScaler(const LossScaleOptions& scale, GradScalerOptions options)
    : options_(std::move(options)), scale_(scale) {
  if (options_.process_group) options_.process_group->require_member("GradScaler");
}

std::optional<ProcessGroup> GradScaler::group() const {
  if (options_.process_group) return options_.process_group;
  return is_initialized() ? std::optional(world()) : std::nullopt;
}

void GradScaler::require_scaled(const char* call) const {
  if (has_scaled_) return;
  refuse_scaler(
      str("Attempted ", call,
          " but _scale is None. This may indicate your program did not use scaler.scale(loss or outputs) "
          "earlier in the iteration."));
}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  if (!options_.enabled) return outputs;
  has_scaled_ = true;
  // A tensor and not a number, because that makes a 0-d float16 loss float32.
  return outputs.mul(at::full({}, scale_.value(), outputs.options().dtype(at::kFloat)));
}

std::vector<at::Tensor> GradScaler::scale(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> scaled;
  for (const at::Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

double GradScaler::scale(double factor) {
  if (!options_.enabled) return factor;
  has_scaled_ = true;
  return factor * scale_.value();
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  require_scaled("unscale_");
  OfOptimizer& state = optimizers_[&optimizer];
  if (state.stage == Stage::UNSCALED)
    refuse_scaler("unscale_() has already been called on this optimizer since the last update().");
  if (state.stage == Stage::STEPPED) refuse_scaler("unscale_() is being called after step().");
  bool none_found = false;
  const auto inverse = static_cast<float>(1.0 / scale_.value());
  const auto found = unscale_gradients(optimizer, inverse, /*allow_half=*/false, &none_found);
  const auto first = first_of_all_ranks(found, group(), scale_.value());
  state = {.stage = Stage::UNSCALED, .checked = !none_found, .overflow = first.has_value()};
  if (first) note_overflow(parameter_name(optimizer, first->index, options_.parameters), first->rank);
}

void GradScaler::note_overflow(std::string parameter, int rank) {
  last_overflow_ = {.parameter = std::move(parameter), .rank = rank, .skips_in_a_row = skips_in_a_row_ + 1};
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  require_scaled("step");
  OfOptimizer& state = optimizers_[&optimizer];
  if (state.stage == Stage::STEPPED) refuse_scaler("step() has already been called since the last update().");
  if (state.stage == Stage::READY) unscale_(optimizer);
  if (!state.checked) {
    refuse_scaler(
        "No inf checks were recorded for this optimizer: none of its parameters has a gradient. Call "
        "scaler.scale(loss).backward() first, with a loss that depends on them");
  }
  if (!state.overflow) optimizer.step();
  note_step("GradScaler's optimiser");
  state.stage = Stage::STEPPED;
  return !state.overflow;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  require_scaled("update");
  const auto any = [&](bool OfOptimizer::*what) {
    return std::any_of(optimizers_.begin(), optimizers_.end(),
                       [&](const auto& one) { return one.second.*what; });
  };
  if (!any(&OfOptimizer::checked)) {
    refuse_scaler(
        "No inf checks were recorded prior to update. Call step() or unscale_() of an optimizer first");
  }
  const bool overflow = any(&OfOptimizer::overflow);
  scale_.update(overflow);
  skips_in_a_row_ = overflow ? skips_in_a_row_ + 1 : 0;
  finish_iteration();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  require_scaled("update");
  scale_.set(new_scale);
  finish_iteration();
}

void GradScaler::finish_iteration() {
  optimizers_.clear();
  if (skips_in_a_row_ == 0 || skips_in_a_row_ % SKIPS_TO_WARN != 0) return;
  log(LogLevel::WARNING,
      str("GradScaler: ", skips_in_a_row_, " steps in a row were skipped and the scale is down to ",
          scale_.value(), ": the model diverges, or is not fit for float16. The gradient of \"",
          printable(last_overflow_->parameter), "\" was not finite on rank ", last_overflow_->rank));
}

void GradScaler::set_growth_factor(double factor) {
  LossScaleOptions options = scale_.options();
  options.growth_factor = factor;
  scale_.set_options(options);
}

void GradScaler::set_backoff_factor(double factor) {
  LossScaleOptions options = scale_.options();
  options.backoff_factor = factor;
  scale_.set_options(options);
}

void GradScaler::set_growth_interval(std::int64_t interval) {
  LossScaleOptions options = scale_.options();
  options.growth_interval = interval;
  scale_.set_options(options);
}

NamedTensors GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  const auto number = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  const auto count = [](std::int64_t value) { return at::scalar_tensor(value, at::kLong); };
  return {{"scale", number(scale_.value())},
          {"growth_factor", number(get_growth_factor())},
          {"backoff_factor", number(get_backoff_factor())},
          {"growth_interval", count(get_growth_interval())},
          {"_growth_tracker", count(scale_.growth_tracker())},
          {"_hysteresis_tracker", count(scale_.hysteresis_left())}};
}

void GradScaler::load_state_dict(const NamedTensors& state) {
  if (!options_.enabled) return;
  if (state.empty()) {
    refuse_scaler(
        "The source state dict is empty, possibly because it was saved from a disabled instance of "
        "GradScaler.");
  }
  const std::map<std::string, at::Tensor> entries(state.begin(), state.end());
  const auto entry = [&](const char* name) {
    const auto found = entries.find(name);
    if (found == entries.end()) refuse_scaler(str("the state has no \"", name, "\""));
    if (found->second.numel() != 1) refuse_scaler(str("\"", name, "\" of the state is not a single number"));
    return found->second.reshape({});
  };
  LossScaleOptions options = scale_.options();
  options.growth_factor = entry("growth_factor").item<double>();
  options.backoff_factor = entry("backoff_factor").item<double>();
  options.growth_interval = entry("growth_interval").item<std::int64_t>();
  const auto value = entry("scale").item<double>();
  const auto growth_tracker = entry("_growth_tracker").item<std::int64_t>();
  const int hysteresis = entries.count("_hysteresis_tracker") != 0 ? entry("_hysteresis_tracker").item<int>()
                                                                   : scale_.options().hysteresis;
  scale_.set_options(options);
  scale_.set(value);
  scale_.set_trackers(growth_tracker, hysteresis);
}

}  // namespace lockstep
