// What tests of this folder take for granted of CUDA. It holds on a GPU, and of the stand-in.
#include <c10/core/Event.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <future>

#include "testing/ranks.h"
#include "tests/cuda/launch.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_tests {
namespace {

RANKS_TEST(CudaDevice, ComputesAsTheCpu, Ranks(1), Backends("nccl")) {
  torch::manual_seed(1);
  const at::Device gpu = gpu_of(world());
  const at::Tensor x = torch::randn({4, 3, 8, 8}, at::kDouble);
  torch::nn::Sequential net(torch::nn::Conv2d(3, 5, 3), torch::nn::BatchNorm2d(5), torch::nn::ReLU(),
                            torch::nn::MaxPool2d(2), torch::nn::Flatten(), torch::nn::Linear(45, 7));
  net->to(at::kDouble);
  torch::nn::Sequential copy(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone(gpu)));
  const at::Tensor loss = net->forward(x).square().mean();
  const at::Tensor on_gpu = copy->forward(x.to(gpu)).square().mean();
  EXPECT_EQ(on_gpu.device(), gpu);
  loss.backward();
  on_gpu.backward();
  EXPECT_NEAR(loss.item<double>(), on_gpu.item<double>(), 1e-12);
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    const at::Tensor expected = net->parameters()[i].grad();
    EXPECT_TRUE(copy->parameters()[i].grad().cpu().allclose(expected, 1e-10, 1e-12)) << i;
  }
}

RANKS_TEST(CudaDevice, ViewsShareMemory, Ranks(1), Backends("nccl")) {
  const at::Tensor x = at::zeros({2, 3}, gpu_of(world()));
  x.t()[1].add_(1);
  x.view({6}).narrow(0, 0, 2).mul_(5);
  EXPECT_TRUE(x.cpu().equal(at::tensor({0.F, 5.F, 0.F, 0.F, 1.F, 0.F}).view({2, 3})));
}

// Kernels are late and streams know nothing of each other, unless an event says so.
RANKS_TEST(CudaDevice, StreamsGoOnByThemselves, Ranks(1), Backends("nccl")) {
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const at::Device gpu = gpu_of(world());
  const at::Tensor x = at::zeros({2}, gpu);
  x.add_(0);  // CUDA loads a kernel when it is first called, and that may wait for the device
  cuda.synchronizeStream(cuda.getStream(gpu));
  const c10::Stream side = cuda.getStreamFromGlobalPool(gpu);
  const c10::Stream usual = cuda.exchangeStream(side);
  std::promise<void> may_go_on;
  launch([wait = may_go_on.get_future().share()] { wait.wait(); });
  x.add_(1);
  c10::Event written(at::kCUDA);
  written.record(side);
  cuda.exchangeStream(usual);
  EXPECT_TRUE(x.cpu().equal(at::zeros({2})));
  EXPECT_FALSE(written.query());
  may_go_on.set_value();
  written.block(usual);
  EXPECT_TRUE(x.cpu().equal(at::ones({2})));
}

}  // namespace
}  // namespace lockstep::cuda_tests
