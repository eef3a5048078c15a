// A training step of a 64-layer network by one thread: plain, and with its activations computed again in
// backward, which are lockstep::checkpoint around each layer, and lockstep::checkpoint_sequential in 8 parts.
//
//   build/bench/activation_checkpoint 10  # rounds; each way takes one step per round, in rotating order
//
// Prints one JSON object per way: the medians over the rounds of forward, backward and both in ms, the peak
// of what forward and backward took of the CPU allocator in MB, and both as ratios to the plain step.
// Gradients exist before the step and are added to in place, so that the peak is activations and what
// backward needs for a moment.
//
// Expected: forward runs twice, so at most 1 + t_forward / (t_forward + t_backward) of the plain step
// ("time_bound"). A layer keeps about 10 tensors of its input's size: layer by layer 64 inputs and one
// layer's ten of 640, in 8 parts 8 inputs and 80.
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/tensor/caching_allocator.h"

namespace nn = torch::nn;

namespace {

constexpr int LAYERS = 64, SEGMENTS = 8, WIDTH = 128, HIDDEN = 4 * WIDTH, ROWS = 512;

struct LayerImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + contract(at::gelu(expand(norm(x)))); }
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({WIDTH})));
  nn::Linear expand = register_module("expand", nn::Linear(WIDTH, HIDDEN));
  nn::Linear contract = register_module("contract", nn::Linear(HIDDEN, WIDTH));
};
TORCH_MODULE(Layer);

// What libtorch's operations on this thread take of the allocator.
struct MemoryInUse : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*pointer*/, std::int64_t bytes, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device /*device*/) override {
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t now = 0, peak = 0;
};

enum Way { PLAIN, EACH_LAYER, SEQUENTIAL, WAYS };
constexpr std::array<const char*, WAYS> NAMES = {"plain", "checkpoint", "checkpoint_sequential"};

struct Step {
  double forward = 0, backward = 0, both = 0, peak = 0;  // ms, MB
};

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

class Network {
 public:
  Network() {
    torch::manual_seed(1);
    for (int i = 0; i < LAYERS; ++i) layers_->push_back(Layer());
    x_ = torch::randn({ROWS, WIDTH});
    for (const at::Tensor& p : layers_->parameters()) p.mutable_grad() = torch::zeros_like(p);
  }

  Step step(Way way) {
    layers_->zero_grad(/*set_to_none=*/false);
    Step result;
    const auto in_use = std::make_shared<MemoryInUse>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, in_use);
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor loss = forward(way).pow(2).mean();
    result.forward = milliseconds_since(start);
    loss.backward();
    result.both = milliseconds_since(start);
    result.backward = result.both - result.forward;
    result.peak = static_cast<double>(in_use->peak) / 1e6;
    return result;
  }

 private:
  at::Tensor forward(Way way) {
    if (way == SEQUENTIAL) return lockstep::checkpoint_sequential(layers_, SEGMENTS, x_);
    if (way == PLAIN) return layers_->forward(x_);
    at::Tensor x = x_;
    for (const auto& layer : *layers_) x = lockstep::checkpoint(layer.ptr<LayerImpl>(), x);
    return x;
  }

  nn::Sequential layers_;
  at::Tensor x_;
};

double median(const std::vector<Step>& steps, double Step::*what) {
  std::vector<double> values;
  for (const Step& step : steps) values.push_back(step.*what);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 2 ? std::atoi(argv[1]) : 0;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: activation_checkpoint ROUNDS\n");
    return 2;
  }
  at::set_num_threads(1);
  lockstep::install_caching_allocator();
  Network network;
  std::array<std::vector<Step>, WAYS> steps;
  for (int round = -1; round < rounds; ++round) {
    for (int i = 0; i < WAYS; ++i) {
      const int way = (round + 1 + i) % WAYS;
      const Step step = network.step(static_cast<Way>(way));
      if (round >= 0) steps[static_cast<std::size_t>(way)].push_back(step);
    }
  }
  const std::vector<Step>& plain = steps[PLAIN];
  const double forward = median(plain, &Step::forward), both = median(plain, &Step::both);
  for (std::size_t way = 0; way < WAYS; ++way) {
    const std::vector<Step>& its = steps[way];
    std::printf(
        "{\"way\": \"%s\", \"forward_ms\": %.3f, \"backward_ms\": %.3f, \"step_ms\": %.3f, \"peak_mb\": "
        "%.3f, "
        "\"time_ratio\": %.4f, \"time_bound\": %.4f, \"memory_ratio\": %.4f}\n",
        NAMES[way], median(its, &Step::forward), median(its, &Step::backward), median(its, &Step::both),
        median(its, &Step::peak), median(its, &Step::both) / both, 1 + forward / both,
        median(its, &Step::peak) / median(plain, &Step::peak));
  }
  return 0;
}
