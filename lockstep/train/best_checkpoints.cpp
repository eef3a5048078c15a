#include "lockstep/train/best_checkpoints.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/agreed_metric.h"

namespace lockstep {

std::vector<ScoredStep> with_candidate(std::vector<ScoredStep> best, const ScoredStep& candidate, int count,
                                       MetricMode mode) {
  std::erase_if(best, [&](const ScoredStep& other) { return other.step == candidate.step; });
  if (!std::isnan(candidate.metric)) best.push_back(candidate);
  std::sort(best.begin(), best.end(), [&](const ScoredStep& a, const ScoredStep& b) {
    return is_better(a.metric, b.metric, mode) || (a.metric == b.metric && a.step < b.step);
  });
  if (best.size() > static_cast<std::size_t>(count)) best.resize(static_cast<std::size_t>(count));
  return best;
}

BestCheckpoints::BestCheckpoints(int count, MetricMode mode, const std::optional<ProcessGroup>& group)
    : count_(count), mode_(mode), group_(group) {
  if (count < 1)
    throw InvalidArgument(lockstep::str("BestCheckpoints: count is ", count, ", expected 1 or more"));
}

std::vector<std::int64_t> BestCheckpoints::add(std::int64_t step, double metric) {
  if (step < 0)
    throw InvalidArgument(lockstep::str("BestCheckpoints::add: step is ", step, ", expected 0 or more"));
  AlikeNumbers alike = {{"the step", static_cast<double>(step)},
                        {"mode (0: MIN, 1: MAX)", mode_ == MetricMode::MIN ? 0.0 : 1.0},
                        {"the number of best steps", static_cast<double>(best_.size())}};
  for (std::size_t i = 0; i < static_cast<std::size_t>(count_); ++i) {
    const ScoredStep scored = i < best_.size() ? best_[i] : ScoredStep{};
    alike.emplace_back(lockstep::str("step number ", i + 1, " by metric"), static_cast<double>(scored.step));
    alike.emplace_back(lockstep::str("the metric of step number ", i + 1), scored.metric);
  }
  const double agreed = agreed_metric("BestCheckpoints::add", metric, alike, group_);
  best_ = with_candidate(std::move(best_), {.step = step, .metric = agreed}, count_, mode_);
  return steps();
}

std::vector<std::int64_t> BestCheckpoints::steps() const {
  std::vector<std::int64_t> steps;
  for (const ScoredStep& scored : best_) steps.push_back(scored.step);
  return steps;
}

std::optional<ScoredStep> BestCheckpoints::best() const {
  if (best_.empty()) return std::nullopt;
  return best_.front();
}

NamedTensors BestCheckpoints::state_dict() const {
  std::vector<double> metrics;
  for (const ScoredStep& scored : best_) metrics.push_back(scored.metric);
  return {{"steps", at::tensor(steps(), at::kLong)}, {"metrics", at::tensor(metrics, at::kDouble)}};
}

void BestCheckpoints::load_state_dict(const NamedTensors& tensors) {
  const std::string call = "BestCheckpoints::load_state_dict";
  const at::Tensor steps = state_entry(call, tensors, "steps").to(at::kCPU, at::kLong).contiguous();
  const at::Tensor metrics = state_entry(call, tensors, "metrics").to(at::kCPU, at::kDouble).contiguous();
  if (steps.dim() != 1 || metrics.sizes() != steps.sizes())
    throw InvalidArgument(lockstep::str(call, ": steps has shape ", steps.sizes(), " and metrics ",
                                        metrics.sizes(), ", expected two lists of one length"));
  std::vector<ScoredStep> loaded;
  for (std::int64_t i = 0; i < steps.numel(); ++i)
    loaded = with_candidate(
        std::move(loaded),
        {.step = steps.const_data_ptr<std::int64_t>()[i], .metric = metrics.const_data_ptr<double>()[i]},
        count_, mode_);
  best_ = std::move(loaded);
}

}  // namespace lockstep
