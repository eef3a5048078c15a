// What holds of the stand-in for CUDA itself: else tests over it would show nothing.
#include <c10/core/Event.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <future>
#include <thread>

#include "testing/ranks.h"
#include "tests/cuda/stand_in.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_stand_in {
namespace {

RANKS_TEST(CudaStandIn, ComputesAsTheCpu, Ranks(1), Backends("nccl")) {
  torch::manual_seed(1);
  const at::Device gpu = cuda_tests::gpu_of(world());
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

RANKS_TEST(CudaStandIn, ViewsShareMemory, Ranks(1), Backends("nccl")) {
  const at::Tensor x = at::zeros({2, 3}, cuda_tests::gpu_of(world()));
  x.t()[1].add_(1);
  x.view({6}).narrow(0, 0, 2).mul_(5);
  EXPECT_TRUE(x.cpu().equal(at::tensor({0.F, 5.F, 0.F, 0.F, 1.F, 0.F}).view({2, 3})));
}

// Kernels are late and streams know nothing of each other, unless an event says so.
RANKS_TEST(CudaStandIn, StreamsGoOnByThemselves, Ranks(1), Backends("nccl")) {
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const at::Device gpu = cuda_tests::gpu_of(world());
  const at::Tensor x = at::zeros({2}, gpu);
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

// A block that is freed belongs to somebody else once its own stream is there; record_stream() names others
// that use it.
RANKS_TEST(CudaStandIn, FreedMemoryIsFilled, Ranks(1), Backends("nccl")) {
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const at::Device gpu = cuda_tests::gpu_of(world());
  for (const bool is_recorded : {false, true}) {
    at::Tensor x = at::ones({1000}, gpu);
    const at::Tensor copy = at::empty({1000}, gpu);
    cuda.synchronizeStream(cuda.getStream(gpu));
    const c10::Stream side = cuda.getStreamFromGlobalPool(gpu);
    const c10::Stream usual = cuda.exchangeStream(side);
    if (is_recorded) x.record_stream(side);
    std::promise<void> may_go_on;
    const auto* const memory = reinterpret_cast<const float*>(memory_of(x.data_ptr()));
    launch([to = memory_of(copy.data_ptr()), memory, wait = may_go_on.get_future().share()] {
      wait.wait();
      std::memcpy(to, memory, 1000 * sizeof(float));
    });
    cuda.exchangeStream(usual);
    x.reset();
    const volatile float& first = *memory;
    while (!is_recorded && first == 1) std::this_thread::yield();
    may_go_on.set_value();
    cuda.synchronizeStream(side);
    EXPECT_EQ(copy.cpu().equal(at::ones({1000})), is_recorded);
  }
}

TEST(CudaStandInDeath, TheHostMayNotTouchItsMemory) {
  EXPECT_EXIT(
      {
        const at::Tensor x = at::zeros({2}, at::Device(at::kCUDA, 0));
        std::printf("%g", *static_cast<const float*>(x.const_data_ptr()));
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace lockstep::cuda_stand_in
