#include "lockstep/train/mean.h"

#include <ATen/ops/scalar_tensor.h>

#include <limits>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

double quotient(double sum, double weight) {
  return weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

at::Tensor mean_across_ranks(const at::Tensor& metric, const ProcessGroup& group) {
  group.require_member("mean_across_ranks");
  const Acting acting(Purpose::MEAN);
  const bool is_real = metric.is_floating_point() || metric.is_complex();
  at::Tensor mean = metric.detach().to(is_real ? metric.scalar_type() : at::kDouble, /*non_blocking=*/false,
                                       /*copy=*/true);
  all_reduce(mean, ReduceOp::AVG, group).wait();
  return mean;
}

double mean_across_ranks(double metric, const ProcessGroup& group) {
  group.require_member("mean_across_ranks");
  const Acting acting(Purpose::MEAN);
  comm::all_reduce(group, std::span(&metric, 1), ReduceOp::AVG).wait();
  return metric;
}

void Mean::add(double value, double weight) {
  if (!(weight >= 0))
    throw InvalidArgument(lockstep::str("Mean: the weight is ", weight, "; it must be at least 0"));
  if (weight == 0) return;  // the value of an empty batch may be NaN
  sum_ += value * weight;
  weight_ += weight;
}

double Mean::of_this_rank() const { return quotient(sum_, weight_); }

double Mean::across_ranks(const ProcessGroup& group) const {
  group.require_member("Mean::across_ranks");
  const Acting acting(Purpose::MEAN);
  double both[] = {sum_, weight_};
  comm::all_reduce(group, std::span<double>(both), ReduceOp::SUM).wait();
  return quotient(both[0], both[1]);
}

NamedTensors Mean::state_dict() const {
  return {{"sum", at::scalar_tensor(sum_, at::kDouble)}, {"weight", at::scalar_tensor(weight_, at::kDouble)}};
}

void Mean::load_state_dict(const NamedTensors& tensors) {
  if (tensors.size() != 2 || tensors[0].first != "sum" || tensors[1].first != "weight")
    throw InvalidArgument("Mean::load_state_dict: not the state of a Mean, which has sum and weight");
  sum_ = tensors[0].second.item<double>();
  weight_ = tensors[1].second.item<double>();
}

}  // namespace lockstep
