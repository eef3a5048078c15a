// GradScaler with the optimiser of a ShardedDataParallel, whose gradients are not averaged before somebody
// looks at them.
#include <gmock/gmock.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <limits>
#include <vector>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

// An overflow on one rank alone: all skip, and no parameter moves.
RANKS_TEST(ShardedScaler, AnOverflowSkipsTheStepOfAllRanks, Ranks(1, 2, 3), Backends("shm", "tcp")) {
  torch::manual_seed(1);
  auto net = std::make_shared<torch::nn::LinearImpl>(300, 300);
  ShardedDataParallel model(net, {.stage = 2});  // over shm that is stage 1
  auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(0.1));
  GradScaler scaler({.init_scale = 8.0});
  const at::Tensor before = net->weight.detach().clone();
  const auto step = [&](double factor) {
    optimizer.zero_grad();
    scaler.scale((net->weight * factor).sum()).backward();
    const bool taken = scaler.step(optimizer);
    scaler.update();
    return taken;
  };
  EXPECT_FALSE(step(rank() == size() - 1 ? std::numeric_limits<double>::infinity() : 1.0));
  EXPECT_TRUE(net->weight.equal(before));
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_TRUE(step(1.0));
  // AdamW's first step moves by lr against the sign of the gradient, beside the decay
  EXPECT_TRUE(at::allclose(net->weight, before * (1 - 0.1 * 0.01) - 0.1, 1e-4, 1e-5));
}

// The gradient of each of the 300 x 300 elements is 1, so the norm is 300, whatever the scale; clipped, 150.
RANKS_TEST(ShardedScaler, ClippingAfterUnscaleTakesTheNormOfWhatIsThere, Ranks(1, 2, 3),
           Backends("shm", "tcp")) {
  auto net = std::make_shared<torch::nn::LinearImpl>(300, 300);
  ShardedDataParallel model(net, {.stage = 2});  // over shm that is stage 1
  auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(0.1));
  GradScaler scaler({.init_scale = 1024.0});
  scaler.scale(net->weight.sum()).backward();
  scaler.unscale_(optimizer);
  EXPECT_NEAR(model.clip_grad_norm_(150.0), 300.0, 1e-9);
  EXPECT_NEAR(model.clip_grad_norm_(1000.0), 150.0, 1e-4);
  for (const auto& [name, gradient] : model.average_gradients()) {
    if (name == "weight") EXPECT_TRUE(at::allclose(gradient, at::full({300, 300}, 0.5F)));
  }
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
}

// 2^-26 is no float16 number, nor is its norm. Scaled by 2^16 it is one, and what unscale_() makes of it is
// float32: weights of 1 move by 2^16 * 2^-26.
RANKS_TEST(ShardedScaler, UnscalesForMastersInFloat32, Ranks(1, 2, 3)) {
  auto net = std::make_shared<torch::nn::LinearImpl>(300, 300);
  net->to(at::kHalf);
  torch::nn::init::ones_(net->weight);
  ShardedDataParallel model(net, {.master_weights = true});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0x1p16));
  GradScaler scaler({.init_scale = 0x1p16});
  scaler.scale(net->weight.to(at::kFloat).sum() * 0x1p-26).backward();
  scaler.unscale_(optimizer);
  EXPECT_EQ(model.clip_grad_norm_(1.0), 300 * 0x1p-26);
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_TRUE(net->weight.eq(1 - 0x1p-10).all().item<bool>());
}

// Stage 3, whose parameters are gathered: the same steps as stage 1, one of them skipped by all ranks.
RANKS_TEST(ShardedScaler, GatheredParametersAreStepped, Ranks(1, 2, 3), Backends("tcp")) {
  torch::set_num_threads(1);
  const auto run = [](int stage) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(100, 200), torch::nn::Linear(200, 100));
    ShardedDataParallel model(net, {.stage = stage, .unit_mb = 0.01, .param_persistence_threshold = 0});
    auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
    GradScaler scaler({.init_scale = 1024});
    for (int step = 0; step < 3; ++step) {
      const bool overflows = step == 1 && get_rank() == 0;
      const at::Tensor x = at::full({2, 100}, 0.1 * (1 + step + get_rank()));
      const at::Tensor loss = model.forward(x).square().mean();
      scaler.scale(loss * (overflows ? std::numeric_limits<double>::infinity() : 1.0)).backward();
      scaler.unscale_(optimizer);
      if (step == 2) model.clip_grad_norm_(0.1);
      EXPECT_EQ(scaler.step(optimizer), step != 1);
      scaler.update();
      optimizer.zero_grad();
    }
    std::vector<at::Tensor> values;
    for (const auto& item : model.state_dict()) values.push_back(item.value().detach().clone());
    return values;
  };
  const auto values = run(3);
  const auto expected = run(1);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(values.at(i).equal(expected[i])) << i;
}

}  // namespace
}  // namespace lockstep
