#include "lockstep/autograd/saved_tensors_hooks.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::ThrowsMessage;

TEST(SavedTensorsHooks, PackAndUnpackEachSavedTensor) {
  const at::Tensor x = torch::ones({3}, torch::requires_grad());
  int packed = 0, unpacked = 0;
  at::Tensor y;
  {
    const auto guard = saved_tensors_hooks([&](const at::Tensor& tensor) {
      ++packed;
      return [&unpacked, tensor] {
        ++unpacked;
        return tensor * 2;
      };
    });
    y = (x * x).sum();  // the product saves both factors
    EXPECT_EQ(packed, 2);
    std::thread([&] { (x * x).sum(); }).join();  // another thread has no hooks
    EXPECT_EQ(packed, 2);
  }
  (x * x).sum();
  EXPECT_EQ(packed, 2);
  EXPECT_EQ(unpacked, 0);
  y.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(unpacked, 2);
  EXPECT_TRUE(x.grad().equal(torch::full({3}, 4.0F)));  // 2x, of what was unpacked as 2
  y.backward();
  EXPECT_EQ(unpacked, 4);
}

TEST(SavedTensorsHooks, TheInnermostAloneIsAsked) {
  const at::Tensor x = torch::ones({3}, torch::requires_grad());
  int outer = 0, inner = 0;
  const auto counts = [](int& count) {
    return [&count](const at::Tensor& tensor) {
      ++count;
      return [tensor] { return tensor; };
    };
  };
  const auto first = saved_tensors_hooks(counts(outer));
  x.exp();
  {
    const auto second = saved_tensors_hooks(counts(inner));
    x.exp();
    x.exp();
  }
  x.exp();
  EXPECT_EQ(outer, 2);
  EXPECT_EQ(inner, 2);
}

TEST(SavedTensorsHooks, WhatTheyThrowKeepsItsType) {
  const at::Tensor x = torch::ones({3}, torch::requires_grad());
  {
    const auto guard = saved_tensors_hooks(
        [](const at::Tensor&) -> SavedTensorsHooks::Unpack { throw std::out_of_range("pack"); });
    EXPECT_THAT([&] { x.exp(); }, ThrowsMessage<std::out_of_range>("pack"));
  }
  at::Tensor y;
  {
    const auto guard = saved_tensors_hooks(
        [](const at::Tensor&) { return []() -> at::Tensor { throw std::out_of_range("unpack"); }; });
    y = x.exp().sum();
  }
  EXPECT_THAT([&] { y.backward(); }, ThrowsMessage<std::out_of_range>("unpack"));
  EXPECT_THROW(static_cast<void>(saved_tensors_hooks({})), InvalidArgument);
  x.exp().sum().backward();  // all is as before
  EXPECT_TRUE(x.grad().equal(x.detach().exp()));
}

}  // namespace
}  // namespace lockstep
