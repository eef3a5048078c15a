#include "lockstep/parallel/pipeline/balance.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <unordered_set>
#include <utility>

#include "lockstep/autograd/saved_tensors_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/tensor/random_state.h"

namespace lockstep {
namespace {

// Buffers and random numbers, as they were before a measurement.
class Unchanged {
 public:
  explicit Unchanged(const torch::nn::Sequential& layers) : random_(get_rng_state()) {
    for (const at::Tensor& buffer : layers->buffers()) buffers_.emplace_back(buffer, buffer.detach().clone());
  }
  ~Unchanged() {
    const at::NoGradGuard no_grad;
    for (auto& [buffer, before] : buffers_) buffer.copy_(before);
    set_rng_state(random_);
  }
  Unchanged(const Unchanged&) = delete;
  Unchanged& operator=(const Unchanged&) = delete;

 private:
  const at::Tensor random_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

double layer_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<at::Tensor> trained_parameters(const torch::nn::Module& layer) {
  std::vector<at::Tensor> trained = layer.parameters();
  std::erase_if(trained, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  return trained;
}

// An input of the layer that requires a gradient wherever it can.
at::Tensor as_input(const at::Tensor& tensor) {
  const at::Tensor input = tensor.detach();
  return input.is_floating_point() ? input.set_requires_grad(true) : input;
}

// Seconds of a layer on a micro-batch.
struct LayerTime {
  double forward = 0;
  double backward = 0;
  double backward_input = 0;  // of these, for the gradient of the input alone
};

// Seconds in which the gradients of `inputs` are computed. Leaves .grad alone.
double gradient_time(const at::Tensor& output, const std::vector<at::Tensor>& inputs) {
  if (!output.requires_grad() || inputs.empty()) return 0;
  const double start = layer_clock();
  torch::autograd::grad({output}, inputs, {at::ones_like(output)}, /*retain_graph=*/false,
                        /*create_graph=*/false, /*allow_unused=*/true);
  return layer_clock() - start;
}

LayerTime time_of(torch::nn::AnyModule& layer, const at::Tensor& input) {
  LayerTime time;
  const double start = layer_clock();
  const at::Tensor output = layer.forward(input);
  time.forward = layer_clock() - start;
  std::vector<at::Tensor> inputs = trained_parameters(*layer.ptr());
  if (input.requires_grad()) inputs.push_back(input);
  time.backward = gradient_time(output, inputs);
  if (input.requires_grad())
    time.backward_input = std::min(time.backward, gradient_time(layer.forward(input), {input}));
  return time;
}

LayerTime median_of(std::vector<LayerTime> trials) {
  const auto of = [&](double LayerTime::*field) {
    const auto middle = trials.begin() + static_cast<std::ptrdiff_t>(trials.size() / 2);
    std::nth_element(trials.begin(), middle, trials.end(),
                     [&](const LayerTime& a, const LayerTime& b) { return a.*field < b.*field; });
    return *middle.*field;
  };
  return {.forward = of(&LayerTime::forward),
          .backward = of(&LayerTime::backward),
          .backward_input = of(&LayerTime::backward_input)};
}

// Bytes that autograd keeps for the backward of a layer, without parameters.
double saved_bytes(torch::nn::AnyModule& layer, const at::Tensor& input) {
  std::unordered_set<const void*> seen;
  for (const at::Tensor& parameter : layer.ptr()->parameters())
    seen.insert(parameter.storage().unsafeGetStorageImpl());
  double bytes = 0;
  const auto hooks = saved_tensors_hooks([&](const at::Tensor& tensor) -> SavedTensorsHooks::Unpack {
    if (seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
      bytes += static_cast<double>(tensor.nbytes());
    return [tensor] { return tensor; };
  });
  const at::Tensor output = layer.forward(input);
  return bytes;
}

// Calls act(layer, its input) for each layer, in order.
template <typename Act>
void for_each_layer(const torch::nn::Sequential& layers, const at::Tensor& sample, const Act& act) {
  const Unchanged unchanged(layers);
  const at::AutoGradMode grad_mode(true);
  at::Tensor input = as_input(sample);
  for (torch::nn::AnyModule layer : *layers) {
    act(layer, input);
    input = as_input(layer.forward(input));
  }
}

std::vector<LayerTime> measure_layers(const torch::nn::Sequential& layers, const at::Tensor& sample,
                                      int trials) {
  if (trials < 1) throw InvalidArgument(lockstep::str("layer_times: ", trials, " trials; it is at least 1"));
  // Each trial runs all layers, because the machine's speed changes from second to second: so a slow second
  // meets many layers in one trial, and not one layer in all of its trials.
  std::vector<std::vector<LayerTime>> all(layers->size());
  for (int trial = -1; trial < trials; ++trial) {  // the first also allocates, and does not count
    auto of_layer = all.begin();
    for_each_layer(layers, sample, [&](torch::nn::AnyModule& layer, const at::Tensor& input) {
      const LayerTime time = time_of(layer, input);
      if (trial >= 0) of_layer->push_back(time);
      ++of_layer;
    });
  }
  std::vector<LayerTime> times;
  for (std::vector<LayerTime>& of_layer : all) times.push_back(median_of(std::move(of_layer)));
  return times;
}

std::vector<std::int64_t> of_rank_zero(std::vector<std::int64_t> balance, const ProcessGroup& group) {
  comm::broadcast(group, std::span<std::int64_t>(balance), GroupRank{0}).wait();
  return balance;
}

}  // namespace

std::vector<std::int64_t> balance_costs(const std::vector<double>& costs, int parts) {
  const std::size_t n = costs.size();
  if (parts < 1 || n < static_cast<std::size_t>(parts))
    throw InvalidArgument(
        lockstep::str("balance_costs: ", n, " layers for ", parts, " parts; each part gets at least one"));
  std::vector<double> before(n + 1, 0);  // sum of the costs of the first i layers
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(costs[i]) || costs[i] < 0)
      throw InvalidArgument(lockstep::str("balance_costs: the cost of layer ", i, " is ", costs[i]));
    before[i + 1] = before[i] + costs[i];
  }
  // best[i]: the smallest largest part of the first i layers in k + 1 parts. cut[k][i]: where its last part
  // begins.
  std::vector<double> best(before.begin(), before.end());
  best[0] = std::numeric_limits<double>::infinity();
  std::vector<std::vector<std::size_t>> cut(static_cast<std::size_t>(parts),
                                            std::vector<std::size_t>(n + 1, 0));
  for (std::size_t k = 1; k < cut.size(); ++k) {
    std::vector<double> next(n + 1, std::numeric_limits<double>::infinity());
    for (std::size_t i = k + 1; i <= n; ++i)
      for (std::size_t j = k; j < i; ++j) {
        const double largest = std::max(best[j], before[i] - before[j]);
        if (largest < next[i]) {
          next[i] = largest;
          cut[k][i] = j;
        }
      }
    best = std::move(next);
  }
  std::vector<std::int64_t> balance(cut.size());
  std::size_t end = n;
  for (std::size_t k = cut.size(); k-- > 0;) {
    balance[k] = static_cast<std::int64_t>(end - cut[k][end]);
    end = cut[k][end];
  }
  return balance;
}

std::vector<double> layer_times(const torch::nn::Sequential& layers, const at::Tensor& sample, int trials) {
  std::vector<double> times;
  for (const LayerTime& time : measure_layers(layers, sample, trials))
    times.push_back(time.forward + time.backward);
  return times;
}

std::vector<double> layer_bytes(const torch::nn::Sequential& layers, const at::Tensor& sample,
                                int micro_batches, double param_scale) {
  std::vector<double> bytes;
  for_each_layer(layers, sample, [&](torch::nn::AnyModule& layer, const at::Tensor& input) {
    double parameters = 0;
    for (const at::Tensor& parameter : layer.ptr()->parameters())
      parameters += static_cast<double>(parameter.nbytes());
    bytes.push_back(saved_bytes(layer, input) * micro_batches + parameters * param_scale);
  });
  return bytes;
}

std::vector<std::int64_t> balance_by_time(int parts, const torch::nn::Sequential& layers,
                                          const at::Tensor& sample, const ProcessGroup& group) {
  group.require_member("balance_by_time");
  return of_rank_zero(balance_costs(layer_times(layers, sample), parts), group);
}

PipelineBalance balance_by_time(const PipelineShape& shape, const torch::nn::Sequential& layers,
                                const at::Tensor& sample, const ProcessGroup& group) {
  group.require_member("balance_by_time");
  std::vector<double> times;  // of each layer, as in LayerTime
  for (const LayerTime& time : measure_layers(layers, sample, /*trials=*/5))
    times.insert(times.end(), {time.forward, time.backward, time.backward_input});
  comm::broadcast(group, std::span(times), GroupRank{0}).wait();
  PipelineShape measured = shape;
  measured.work = {.forward = 0, .backward_input = 0, .backward_weight = 0};
  std::vector<double> costs;
  for (std::size_t i = 0; i < times.size(); i += 3) {
    costs.push_back(times[i] + times[i + 1]);
    measured.work.forward += times[i];
    measured.work.backward_input += times[i + 2];
    measured.work.backward_weight += times[i + 1] - times[i + 2];
  }
  return balance_pipeline(measured, costs);
}

std::vector<std::int64_t> balance_by_size(int parts, const torch::nn::Sequential& layers,
                                          const at::Tensor& sample, int micro_batches, double param_scale,
                                          const ProcessGroup& group) {
  group.require_member("balance_by_size");
  return of_rank_zero(balance_costs(layer_bytes(layers, sample, micro_batches, param_scale), parts), group);
}

torch::nn::Sequential sequential_part(const torch::nn::Sequential& layers,
                                      const std::vector<std::int64_t>& balance, int part) {
  const auto count = static_cast<std::int64_t>(layers->size());
  const bool is_fine =
      std::accumulate(balance.begin(), balance.end(), std::int64_t{0}) == count &&
      std::all_of(balance.begin(), balance.end(), [](std::int64_t size) { return size > 0; });
  if (!is_fine || part < 0 || part >= static_cast<int>(balance.size()))
    throw InvalidArgument(lockstep::str("sequential_part: part ", part, " of the balance [",
                                        at::IntArrayRef(balance), "] for ", count,
                                        " layers; entries are above 0 and sum to the number of layers"));
  const std::int64_t first = std::accumulate(balance.begin(), balance.begin() + part, std::int64_t{0});
  torch::nn::Sequential mine;
  const auto names = layers->named_children();
  for (std::int64_t i = first; i < first + balance[static_cast<std::size_t>(part)]; ++i) {
    const auto place = static_cast<std::size_t>(i);
    mine->push_back(names[place].key(), *(layers->begin() + i));
  }
  return mine;
}

}  // namespace lockstep
