#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using Tensors = std::vector<at::Tensor>;

[[noreturn]] void refuse_batch_norm(const std::string& what) {
  throw InvalidArgument("SyncBatchNorm: " + what);
}

// The type of statistics and parameters for this input.
at::ScalarType stats_type(const at::Tensor& input) {
  return c10::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

// Statistics of the joined batch.
struct BatchStats {
  at::Tensor mean;      // C float64s, not rounded
  at::Tensor variance;  // biased: divided by count
  double count = 0;     // values per channel
};

// This rank's count, mean and sum of squared deviations per channel: 1 + 2C float64s.
at::Tensor own_moments(const at::Tensor& input) {
  const std::int64_t channels = input.size(1);
  const auto options = input.options().dtype(at::kDouble);
  if (input.numel() == 0) return at::zeros({1 + 2 * channels}, options);
  const auto count = static_cast<double>(input.numel() / channels);
  // only its type is used
  const at::Tensor unused = at::zeros({channels}, input.options().dtype(stats_type(input)));
  const auto [mean, variance] = at::batch_norm_update_stats(input, unused, unused.clone(), /*momentum=*/0.0);
  return at::cat({at::full({1}, count, options), mean.to(at::kDouble), variance.to(at::kDouble) * count});
}

BatchStats joined_stats(const at::Tensor& input, const ProcessGroup& group, const std::string& name) {
  const std::int64_t channels = input.size(1);
  const at::Tensor own = own_moments(input);
  const Acting acting(Purpose::SYNC_BATCH_NORM_FORWARD, name);
  const at::Tensor all = at::empty({group.size(), own.numel()}, own.options());
  all_gather_into_tensor(all, own, group);
  const at::Tensor counts = all.narrow(1, 0, 1);
  const at::Tensor means = all.narrow(1, 1, channels);
  const at::Tensor deviations = all.narrow(1, 1 + channels, channels);
  BatchStats stats{.count = counts.sum().item<double>()};
  if (stats.count == 0) return stats;
  stats.mean = (counts * means).sum(0) / stats.count;
  stats.variance = (deviations + counts * (means - stats.mean).square()).sum(0) / stats.count;
  return stats;
}

void update_running(const at::Tensor& running_mean, const at::Tensor& running_var, const BatchStats& stats,
                    double momentum) {
  const auto update = [&](const at::Tensor& running, const at::Tensor& batch) {
    if (running.defined()) running.copy_(running.to(at::kDouble) * (1 - momentum) + batch * momentum);
  };
  update(running_mean, stats.mean);
  update(running_var, stats.variance * (stats.count / (stats.count - 1)));
}

// Shapes one value per channel for dimension 1 of a tensor with `dims` dimensions.
at::Tensor along_channels(const at::Tensor& values, std::int64_t dims) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(dims), 1);
  sizes[1] = values.numel();
  return values.view(sizes);
}

struct GroupHolder : torch::CustomClassHolder {
  GroupHolder(ProcessGroup of, std::string layer) : group(std::move(of)), name(std::move(layer)) {}
  ProcessGroup group;
  std::string name;  // of the layer
};

// (input - mean) / sqrt(variance + eps) * weight + bias, where mean and variance are functions of all ranks'
// inputs.
class Normalise : public torch::autograd::Function<Normalise> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            const BatchStats& stats, double eps, const ProcessGroup& group,
                            const std::string& name) {
    const at::ScalarType type = stats_type(input);
    const at::Tensor scale = weight ? weight->to(type) : at::Tensor();
    const at::Tensor shift = bias ? bias->to(type) : at::Tensor();
    const at::Tensor mean = stats.count > 0 ? stats.mean.to(type) : at::Tensor();
    const at::Tensor variance = stats.count > 0 ? stats.variance.to(type) : at::Tensor();
    context->save_for_backward({input, scale, mean, variance});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["count"] = stats.count;
    context->saved_data["eps"] = eps;
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group, name));
    if (input.numel() == 0) return at::empty_like(input);
    return std::get<0>(
        at::native_batch_norm(input, scale, shift, mean, variance, /*training=*/false, 0.0, eps));
  }

  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    if (at::GradMode::is_enabled()) {
      refuse_batch_norm("backward(create_graph = true): there is no derivative of its gradient");
    }
    const Tensors saved = context->get_saved_variables();
    const auto [dot, sum] = own_sums(gradients[0], saved, context->saved_data["eps"].toDouble());
    Tensors result(7);
    if (context->needs_input_grad(0)) result[0] = of_input(context, gradients[0], saved, dot, sum);
    if (saved[1].defined()) result[1] = dot;
    if (context->saved_data["has_bias"].toBool()) result[2] = sum;
    return result;
  }

 private:
  // Per channel: the sums of gradient * normalised input, and of the gradient.
  static std::pair<at::Tensor, at::Tensor> own_sums(const at::Tensor& gradient, const Tensors& saved,
                                                    double eps) {
    const auto& [input, scale, mean, variance] = std::tie(saved[0], saved[1], saved[2], saved[3]);
    if (input.numel() == 0) {
      const at::Tensor zeros = at::zeros({input.size(1)}, input.options().dtype(stats_type(input)));
      return {zeros, zeros};
    }
    // The mean and variance are given as the running ones, with no saved ones. CUDA's kernel wants a tensor
    // to say that.
    const at::Tensor none = at::empty({0}, mean.options());
    const auto result =
        at::native_batch_norm_backward(gradient, input, scale, mean, variance, none, none, /*train=*/false,
                                       eps, std::array<bool, 3>{false, true, true});
    return {std::get<1>(result), std::get<2>(result)};
  }

  static at::Tensor of_input(AutogradContext* context, const at::Tensor& gradient, const Tensors& saved,
                             const at::Tensor& dot, const at::Tensor& sum) {
    const auto& [input, scale, mean, variance] = std::tie(saved[0], saved[1], saved[2], saved[3]);
    const auto holder =
        c10::static_intrusive_pointer_cast<GroupHolder>(context->saved_data["group"].toCapsule());
    const at::Tensor means = at::cat({dot, sum}).to(at::kDouble);
    const Acting acting(Purpose::SYNC_BATCH_NORM_BACKWARD, holder->name);
    all_reduce(means, ReduceOp::SUM, holder->group);
    if (input.numel() == 0) return at::zeros_like(input);
    means.div_(context->saved_data["count"].toDouble());

    const std::int64_t dims = input.dim();
    const auto as_channels = [&mean = mean, dims](const at::Tensor& values) {
      return along_channels(values.to(mean.scalar_type()), dims);
    };
    const at::Tensor inverse_std = (variance.to(at::kDouble) + context->saved_data["eps"].toDouble()).rsqrt();
    const at::Tensor slope = as_channels(-means.narrow(0, 0, dot.numel()) * inverse_std);
    at::Tensor result = gradient - as_channels(means.narrow(0, dot.numel(), sum.numel()));
    result.addcmul_(input - as_channels(mean), slope);
    result.mul_(as_channels(scale.defined() ? inverse_std * scale : inverse_std));
    return result.to(input.scalar_type());
  }
};

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

void check_input(const at::Tensor& input) {
  if (input.dim() < 2) {
    refuse_batch_norm(
        lockstep::str("the input has sizes ", input.sizes(), "; expected (N, C) or (N, C, ...)"));
  }
  if (input.size(1) == 0)
    refuse_batch_norm(lockstep::str("the input has sizes ", input.sizes(), ": no channels"));
}

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& running_mean,
                           const at::Tensor& running_var, const at::Tensor& weight, const at::Tensor& bias,
                           double momentum, double eps, const ProcessGroup& group, const std::string& name) {
  group.require_member("SyncBatchNorm");
  check_input(input);
  BatchStats stats;
  {
    const at::NoGradGuard no_grad;
    stats = joined_stats(input.detach(), group, name);
    if (stats.count == 1) {
      refuse_batch_norm(lockstep::str(
          "rank ", group.rank(), " of group \"", group.name(),
          "\": all ranks together have a single value per channel, whose variance is not defined"));
    }
    if (stats.count > 0) update_running(running_mean, running_var, stats, momentum);
  }
  return Normalise::apply(input, if_defined(weight), if_defined(bias), stats, eps, group, name);
}

std::optional<ProcessGroup> group_to_normalise(const std::optional<ProcessGroup>& process_group) {
  if (!process_group && !is_initialized()) return std::nullopt;
  if (has_virtual_ranks()) {
    refuse_batch_norm(
        "it needs the batches of all ranks at once, and virtual ranks take turns; use BatchNorm, or start "
        "the "
        "job without virtual ranks");
  }
  const ProcessGroup& group = process_group ? *process_group : world();
  group.require_member("SyncBatchNorm");
  return group.size() > 1 ? std::optional(group) : std::nullopt;
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  check_input(input);
  if (input.size(1) != options.num_features()) {
    refuse_batch_norm(lockstep::str("the input has sizes ", input.sizes(), ", so ", input.size(1),
                                    " channels; the layer has ", options.num_features()));
  }
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  double factor = options.momentum().value_or(0.0);
  if (is_training() && num_batches_tracked.defined()) {
    num_batches_tracked.add_(1);
    if (!options.momentum()) factor = 1.0 / num_batches_tracked.item<double>();
  }
  if (is_training()) {
    if (const auto group = group_to_normalise(options.process_group())) {
      return sync_batch_norm(input, running_mean, running_var, weight, bias, factor, options.eps(), *group,
                             options.name());
    }
  }
  return at::batch_norm(input, weight, bias, running_mean, running_var,
                        is_training() || !running_mean.defined(), factor, options.eps(),
                        /*cudnn_enabled=*/true);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "lockstep::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats()
         << ")";
}

}  // namespace lockstep
