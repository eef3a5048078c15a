// What the tests over the stand-in for CUDA train: the same small net on this rank's GPU with a share of each
// batch, and in one process on the CPU with plain libtorch and the whole batches.
//
//   Training training(world());
//   training.run({.steps = 5}, [&](const Batch& batch) { ... });
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::cuda_tests {

constexpr int BATCH = 12;  // divisible by 1, 2, 3 and 4
constexpr int CLASSES = 5;

inline at::Device gpu_of(const ProcessGroup& group) {
  return {at::kCUDA, static_cast<c10::DeviceIndex>(group.backend().device_index())};
}

// With a branch that only some batches use, and room for a batch norm.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool normalises = false) {
    conv = register_module("conv", torch::nn::Conv2d(1, 4, 3));
    if (normalises) norm = register_module("norm", torch::nn::BatchNorm2d(4));
    hidden = register_module("hidden", torch::nn::Linear(4 * 4 * 4, 16));
    extra = register_module("extra", torch::nn::Linear(16, 16));
    out = register_module("out", torch::nn::Linear(16, CLASSES));
  }
  at::Tensor forward(const at::Tensor& x, bool uses_extra = true) {
    at::Tensor h = conv(x);
    if (norm) h = norm(h);
    h = torch::max_pool2d(torch::relu(h), 2).flatten(1);
    h = torch::tanh(hidden(h));
    if (uses_extra) h = torch::tanh(extra(h));
    return out(h);
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear hidden{nullptr}, extra{nullptr}, out{nullptr};
};
TORCH_MODULE(Net);

inline Net make_net(int seed, bool normalises = false) {
  torch::manual_seed(seed);
  Net net(normalises);
  net->to(at::kDouble);
  return net;
}

struct Batch {
  at::Tensor data, target;

  static Batch make(int step) {
    const auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 + step));
    return {torch::randn({BATCH, 1, 10, 10}, generator, at::kDouble),
            torch::randint(CLASSES, {BATCH}, generator, at::kLong)};
  }
  Batch share(const ProcessGroup& group) const {
    const std::int64_t count = BATCH / group.size();
    return {data.narrow(0, group.rank() * count, count).to(gpu_of(group)),
            target.narrow(0, group.rank() * count, count).to(gpu_of(group))};
  }
};

// Of any values by the same names, on any device; relative to the largest value of each.
inline void expect_close(const torch::OrderedDict<std::string, at::Tensor>& own,
                         const torch::OrderedDict<std::string, at::Tensor>& expected, double bound) {
  for (const auto& item : expected) {
    const at::Tensor mine = own[item.key()].detach().cpu();
    const double distance = (mine - item.value().detach()).abs().max().item<double>();
    EXPECT_LE(distance, bound * item.value().detach().abs().max().item<double>()) << item.key();
  }
}

}  // namespace lockstep::cuda_tests
