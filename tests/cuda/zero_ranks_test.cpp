// ShardedDataParallel on GPUs: what ranks compute there is what one process computes on the CPU with
// libtorch's optimisers and the whole batches.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <string>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "tests/cuda/sharded_training.h"

namespace lockstep::cuda_tests {
namespace sharded::zero_ranks_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<Way> ways() {
  return {{.stage = 1},
          {.stage = 2},
          {.stage = 1, .backwards = 2},
          {.stage = 2, .clips = true},
          {.clips = true},
          {.stage = 1, .clips = true, .offload = OffloadOptions{}},
          {.stage = 2, .backwards = 2, .offload = OffloadOptions{}},
          {.stage = 3},
          {.stage = 3, .backwards = 2, .clips = true},
          {.stage = 3, .offload = OffloadOptions{}},
          {.stage = 3, .clips = true, .offload = OffloadOptions{.parameters = true}}};
}

RANKS_TEST(CudaSharded, SgdEqualsOneProcess, Ranks(1, 2, 3), Backends("nccl")) {
  for (const Way& way : ways())
    expect_same_training<optim::SGD, torch::optim::SGD>(world(), optim::SGDOptions(0.05).momentum(0.9),
                                                        torch::optim::SGDOptions(0.05).momentum(0.9), way);
}

RANKS_TEST(CudaSharded, AdamWEqualsOneProcess, Ranks(1, 2, 3), Backends("nccl")) {
  for (const Way& way : ways())
    expect_same_training<optim::AdamW, torch::optim::AdamW>(
        world(), optim::AdamWOptions(0.01).weight_decay(0.1),
        torch::optim::AdamWOptions(0.01).weight_decay(0.1), way);
}

RANKS_TEST(CudaSharded, TakesLibtorchsOptimisers, Ranks(2), Backends("nccl")) {
  const auto options = torch::optim::AdamWOptions(0.01).weight_decay(0.1);
  for (const Way& way : ways())
    expect_same_training<torch::optim::AdamW, torch::optim::AdamW>(world(), options, options, way);
}

RANKS_TEST(CudaSharded, EqualsOneProcessOnTwoMachines, Ranks(4), Backends("hierarchical+nccl")) {
  for (const int stage : {2, 3})
    expect_same_training<optim::SGD, torch::optim::SGD>(world(), optim::SGDOptions(0.05),
                                                        torch::optim::SGDOptions(0.05), {.stage = stage});
}

// The norm of a parameter is that of all its shards: LAMB in one process is LAMB of Lockstep on the CPU,
// which large_batch_test.cpp compares with Python's.
RANKS_TEST(CudaSharded, LambTakesTheNormsOfWholeParameters, Ranks(2, 3), Backends("nccl")) {
  const auto options = optim::LAMBOptions(0.01).weight_decay(0.01).max_grad_norm(MAX_NORM);
  for (const int stage : {1, 2, 3})
    expect_same_training<optim::LAMB, optim::LAMB>(world(), options, options, {.stage = stage});
}

// All ranks have the same batch, so the average is each one's own gradient, and every value is known: that of
// libtorch on the same GPU, because a CPU rounds sums of 16 bits in another order.
RANKS_TEST(CudaSharded, SixteenBitsAreSteppedInFloat32, Ranks(2, 4), Backends("nccl")) {
  constexpr float LR = 1 / 128.F;  // whose product is exact, so that a fused multiply-add has the same bits
  const std::optional<OffloadOptions> nowhere, to_host = OffloadOptions{};
  const std::optional<OffloadOptions> all_to_host = OffloadOptions{.parameters = true};
  const testing::SharedFolder folder(world());
  const std::optional<OffloadOptions> all_to_files =
      OffloadOptions{.folder = folder.path(), .parameters = true};
  for (const auto& [stage, offload] :
       {std::pair(1, nowhere), std::pair(2, nowhere), std::pair(2, to_host), std::pair(3, nowhere),
        std::pair(3, all_to_host), std::pair(3, all_to_files)}) {
    const at::Device gpu = gpu_of(world());
    torch::nn::Linear net(6, 3), alone(6, 3);
    net->to(gpu, at::kBFloat16);
    alone->to(gpu, at::kBFloat16);
    ShardedDataParallel model(
        net, {.stage = stage, .master_weights = true, .offload = offload, .param_persistence_threshold = 3});
    auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(LR));
    alone->weight.data().copy_(net->weight.detach());
    alone->bias.data().copy_(net->bias.detach());
    std::vector<at::Tensor> masters;
    for (const at::Tensor& parameter : alone->parameters())
      masters.push_back(parameter.detach().to(at::kFloat));
    for (int step = 0; step < 30; ++step) {
      const at::Tensor x = at::arange(12, at::kFloat).view({2, 6}).add(step).cos().to(gpu, at::kBFloat16);
      model.forward(x).square().sum().backward();
      optimizer.step();
      alone->zero_grad();
      alone->forward(x).square().sum().backward();
      for (std::size_t i = 0; i < masters.size(); ++i) {
        masters[i].sub_(alone->parameters()[i].grad().to(at::kFloat) * LR);
        alone->parameters()[i].data().copy_(masters[i]);
      }
      ASSERT_TRUE(net->weight.detach().equal(alone->weight.detach())) << stage << ' ' << step;
      ASSERT_TRUE(net->bias.detach().equal(alone->bias.detach())) << stage << ' ' << step;
    }
  }
}

// An overflow on one rank alone: all skip together, and the scale halves.
RANKS_TEST(CudaSharded, RanksSkipAnOverflowTogether, Ranks(2, 3), Backends("nccl")) {
  for (const int stage : {1, 2, 3}) {
    torch::nn::Linear net(torch::nn::LinearOptions(3, 1).bias(false));
    {
      const at::NoGradGuard no_grad;
      net->weight.fill_(1);
    }
    net->to(gpu_of(world()));
    ShardedDataParallel model(net, {.stage = stage, .param_persistence_threshold = 0});
    auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.5));
    GradScaler scaler({.init_scale = 8}, {.process_group = world()});
    const auto step = [&](double factor) {
      optimizer.zero_grad();
      const at::Tensor x = torch::full({1, 3}, factor, at::TensorOptions(at::kFloat).device(gpu_of(world())));
      scaler.scale(model.forward(x).sum()).backward();
      const bool taken = scaler.step(optimizer);
      scaler.update();
      return taken;
    };
    const auto weight = [&] { return net->weight.detach().cpu(); };
    EXPECT_TRUE(step(1));
    EXPECT_TRUE(weight().equal(torch::full({1, 3}, 0.5F)));
    EXPECT_FALSE(step(rank() == 1 ? INFINITY : 1));
    EXPECT_EQ(scaler.get_scale(), 4);
    EXPECT_TRUE(step(-1));
    EXPECT_TRUE(weight().equal(torch::ones({1, 3})));
  }
}

// Saved on GPUs in one stage, loaded on GPUs in another one, and by a model in CPU memory.
RANKS_TEST(CudaSharded, CheckpointsGoFromAnyStageAndDeviceToAnyOther, Ranks(2, 3), Backends("nccl")) {
  const testing::SharedFolder folder(world());
  const at::Device gpu = gpu_of(world());
  for (const int stage : {1, 2, 3}) {
    const std::string path = folder / ("stage" + std::to_string(stage));
    ShardedRun saved(world(), stage, gpu, 1);
    saved.train(0, 3);
    save_checkpoint(path, saved.state, {.step = 3, .durable = false});
    saved.train(3, 5);
    torch::OrderedDict<std::string, at::Tensor> expected;
    for (const auto& item : saved.net->named_parameters())
      expected.insert(item.key(), item.value().detach().cpu());
    const int other = stage % 3 + 1;
    const auto expect_the_same = [&](const at::Device& device, const std::optional<OffloadOptions>& offload) {
      ShardedRun loaded(world(), other, device, 2, offload);
      load_checkpoint(path, loaded.state);
      loaded.train(3, 5);
      expect_close(loaded.net->named_parameters(), expected, EXACT);
      if (stage == 2) return;
      save_checkpoint(path + "again", loaded.state, {.step = 5, .durable = false});
      ShardedRun again(world(), stage, gpu, 3);
      load_checkpoint(path + "again", again.state);
      expect_close(again.net->named_parameters(), expected, EXACT);
    };
    expect_the_same(gpu, {});
    expect_the_same(gpu, OffloadOptions{.parameters = other == 3});
    expect_the_same(gpu, OffloadOptions{.folder = folder.path(), .parameters = other == 3});
    expect_the_same(at::kCPU, {});
  }
}

RANKS_TEST(CudaSharded, WritesReachAllRanks, Ranks(2, 3), Backends("nccl")) {
  Net net = make_net(rank());
  net->to(gpu_of(world()));
  ShardedDataParallel model(net);
  model.write_parameters([&] { net->out->bias.fill_(7); });
  EXPECT_TRUE(net->out->bias.detach().cpu().equal(at::full({CLASSES}, 7, at::kDouble)));
  {
    const at::NoGradGuard no_grad;
    net->out->bias.fill_(8);
  }
  const Batch batch = Batch::make(0).share(world());
  EXPECT_THAT([&] { model.forward(batch.data); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"out.bias\" was written to in place")));
}

RANKS_TEST(CudaSharded, ADeadRankSurfacesFromTheStep, Ranks(3), Backends("nccl"), Dies({2})) {
  Net net = make_net(0);
  net->to(gpu_of(world()));
  ShardedDataParallel model(net, {.stage = 2});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.05));
  const Batch batch = Batch::make(0).share(world());
  const auto step = [&] {
    torch::cross_entropy_loss(model.forward(batch.data), batch.target).backward();
    optimizer.step();
  };
  step();
  net->out->weight.detach().cpu();  // the hosts have not waited for each other's parts
  barrier(world());
  if (rank() == 2) die();
  EXPECT_THAT(
      [&] {
        step();
        step();
      },
      ThrowsMessage<PeerLost>(HasSubstr("rank 2")));
}

}  // namespace
}  // namespace sharded::zero_ranks_test
}  // namespace lockstep::cuda_tests
