// What holds of the stand-in for CUDA itself: else tests over it would show nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/cuda/stand_in.h"

namespace lockstep::cuda_stand_in {
namespace {

const at::Device GPU(at::kCUDA, 0);

TEST(CudaStandIn, ComputesAsTheCpu) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({4, 3, 8, 8}, at::kDouble);
  torch::nn::Sequential net(torch::nn::Conv2d(3, 5, 3), torch::nn::BatchNorm2d(5), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                            torch::nn::Flatten(), torch::nn::Linear(45, 7));
  net->to(at::kDouble);
  torch::nn::Sequential copy(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone(GPU)));
  const at::Tensor loss = net->forward(x).square().mean();
  const at::Tensor on_gpu = copy->forward(x.to(GPU)).square().mean();
  EXPECT_EQ(on_gpu.device(), GPU);
  loss.backward();
  on_gpu.backward();
  EXPECT_NEAR(loss.item<double>(), on_gpu.item<double>(), 1e-12);
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    EXPECT_TRUE(net->parameters()[i].grad().allclose(copy->parameters()[i].grad().cpu(), 1e-10, 1e-12)) << i;
}

TEST(CudaStandIn, ViewsShareMemory) {
  const at::Tensor x = at::zeros({2, 3}, GPU);
  x.t()[1].add_(1);
  x.view({6}).narrow(0, 0, 2).mul_(5);
  EXPECT_TRUE(x.cpu().equal(at::tensor({0.F, 5.F, 0.F, 0.F, 1.F, 0.F}).view({2, 3})));
}

TEST(CudaStandInDeath, TheHostMayNotTouchItsMemory) {
  const at::Tensor x = at::zeros({2}, GPU);
  EXPECT_EXIT(std::printf("%g", *static_cast<const float*>(x.const_data_ptr())), ::testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace lockstep::cuda_stand_in
