// Stage 3 of ShardedDataParallel on GPUs: units of parameters come and go, and a rank alone is told.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/meta_init.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_tests {
namespace zero_units_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t WIDTH = 100;
constexpr std::size_t LAYER = WIDTH * WIDTH + WIDTH;  // elements of a unit

// Each layer's weight and bias are a unit.
ShardedDataParallelOptions stage_3(const std::optional<OffloadOptions>& offload = {}) {
  return {.stage = 3,
          .bucket_cap_mb = 0.02,
          .offload = offload,
          .unit_mb = 0.0385,
          .param_persistence_threshold = 0,
          .max_live_parameters = 2 * LAYER};
}

// Weight i is i + 1 divided by the width, so ones become i + 1.
torch::nn::Sequential layers(int count, const ProcessGroup& group) {
  torch::nn::Sequential net;
  const at::NoGradGuard no_grad;
  for (int i = 0; i < count; ++i) {
    torch::nn::Linear layer(WIDTH, WIDTH);
    layer->weight.fill_((i + 1) / static_cast<double>(WIDTH));
    layer->bias.zero_();
    net->push_back(layer);
  }
  net->to(gpu_of(group));
  return net;
}

const at::Tensor& weight_of(torch::nn::Sequential& net, std::size_t layer) {
  return net[layer]->as<torch::nn::Linear>()->weight;
}

at::Tensor ones_for(const ProcessGroup& group) {
  return at::ones({2, WIDTH}, at::TensorOptions(gpu_of(group)));
}

using Model = ShardedDataParallel<torch::nn::SequentialImpl>;

void train(Model& model, ShardedOptimizer<optim::SGD>& optimizer, const ProcessGroup& group, int steps) {
  for (int step = 0; step < steps; ++step) {
    model.forward(ones_for(group).requires_grad_(true)).square().mean().backward();
    optimizer.step();
  }
}

RANKS_TEST(CudaUnits, AreThereWhileAnOperatorReadsThem, Ranks(1, 2, 3), Backends("nccl")) {
  auto net = layers(4, world());
  Model model(net, stage_3());
  const auto is_there = [&](std::size_t layer) {
    c10::StorageImpl& storage = *weight_of(net, layer).storage().unsafeGetStorageImpl();
    return storage._mutable_data_ptr_no_checks().get() != nullptr;
  };
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(is_there(i)) << i;
  EXPECT_THAT([&] { weight_of(net, 0).data_ptr<float>(); },
              ThrowsMessage<c10::Error>(AnyOf(HasSubstr("this parameter is not gathered now"),
                                              HasSubstr("not allocated yet"))));  // libtorch 2.11
  const at::Tensor y = model.forward(ones_for(world()));
  EXPECT_TRUE(y.detach().cpu().allclose(at::full({2, WIDTH}, 24.0)));
  EXPECT_FALSE(is_there(0));  // room is for two
  EXPECT_FALSE(is_there(1));
  EXPECT_TRUE(is_there(3));
  model.read_parameters([&] {
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NE(weight_of(net, i).data_ptr(), nullptr) << i;
  });
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(is_there(i)) << i;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto state = model.state_dict();
    EXPECT_TRUE(state[std::to_string(i) + ".weight"].cpu().allclose(
        at::full({WIDTH, WIDTH}, static_cast<double>(i + 1) / WIDTH)));
  }
}

// What one backward saves are views of weights, which find their unit again.
RANKS_TEST(CudaUnits, BackwardFindsWhatItHasSaved, Ranks(2, 3), Backends("nccl")) {
  for (const auto& offload :
       {std::optional<OffloadOptions>(), std::optional(OffloadOptions{.parameters = true})}) {
    auto net = layers(4, world());
    Model model(net, stage_3(offload));
    const at::Tensor x = ones_for(world()).requires_grad_(true);
    model.forward(x).sum().backward();
    EXPECT_TRUE(x.grad().cpu().allclose(at::full({2, WIDTH}, 24.0)));
  }
}

// Part of P, and two units; the part lies on the host where it is offloaded.
RANKS_TEST(CudaUnits, MemoryIsAPartAndWhatIsThere, Ranks(2, 4), Backends("nccl")) {
  constexpr int LAYERS = 16;
  auto net = layers(LAYERS, world());
  const double parameters = 4.0 * LAYER * LAYERS;
  const double live = 2 * 4.0 * LAYER;
  {
    Model model(net, stage_3());
    const double formula = parameters / size() + live;
    EXPECT_NEAR(model.memory().parameters, formula, 0.05 * formula);
  }
  auto other = layers(LAYERS, world());
  Model model(other, stage_3(OffloadOptions{.parameters = true}));
  EXPECT_NEAR(model.memory().parameters, live, 0.1 * live);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.01));
  for (const at::Tensor& shard : optimizer.param_groups()[0].params()) EXPECT_TRUE(shard.is_cpu());
}

// Rank 0's values reach every rank's part.
RANKS_TEST(CudaUnits, WritesReachAllRanks, Ranks(2, 3), Backends("nccl")) {
  for (const auto& offload :
       {std::optional<OffloadOptions>(), std::optional(OffloadOptions{.parameters = true})}) {
    auto net = layers(3, world());
    Model model(net, stage_3(offload));
    model.write_parameters([&] {
      for (std::size_t i = 0; i < 3; ++i) weight_of(net, i).fill_(2.0 / WIDTH);
    });
    EXPECT_TRUE(model.forward(ones_for(world())).detach().cpu().allclose(at::full({2, WIDTH}, 8.0)));
  }
}

RANKS_TEST(CudaUnits, WhatTakesBytesPastOperatorsIsRefusedByName, Ranks(2), Backends("nccl")) {
  const testing::SharedFolder folder(world());
  auto net = layers(3, world());
  Model model(net, stage_3());
  EXPECT_THAT([&] { save_state_dict(*net, folder / "model.safetensors"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("each rank has a part alone of tensor \"0.weight\"")));
  const at::NoGradGuard no_grad;
  weight_of(net, 1).fill_(1);
  EXPECT_THAT([&] { model.forward(ones_for(world())); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"1.weight\" was written to in place")));
}

RANKS_TEST(CudaUnits, AParameterThatHasLeftIsNamed, Ranks(2), Backends("nccl")) {
  auto net = layers(3, world());
  Model model(net, stage_3());
  weight_of(net, 1).set_data(at::ones({WIDTH, WIDTH}, at::TensorOptions(gpu_of(world()))));
  EXPECT_THAT([&] { model.forward(ones_for(world())); },
              ThrowsMessage<InvalidArgument>(HasSubstr("parameter \"1.weight\" has left the memory")));
}

// They hold what gathers them.
RANKS_TEST(CudaUnits, ComeAlsoWhenTheWrapperIsGone, Ranks(2), Backends("nccl")) {
  auto net = layers(3, world());
  { const Model model(net, stage_3()); }
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(net->forward(ones_for(world())).cpu().allclose(at::full({2, WIDTH}, 6.0)));
}

RANKS_TEST(CudaUnits, RanksThatReadDifferentOnesAreTold, Ranks(2), Backends("nccl")) {
  const auto read_and_run = [&] {
    auto net = layers(3, world());
    Model model(net, stage_3());
    // An operator of libtorch cannot throw it, and what is read before the host knows has no meaning.
    EXPECT_NO_THROW(weight_of(net, rank() == 0 ? 2 : 0).detach().sum().cpu());
    model.forward(ones_for(world()));
    barrier(world());
  };
  EXPECT_THAT(read_and_run, ThrowsMessage<Mismatch>(AllOf(HasSubstr("to gather unit 0 of its parameters"),
                                                          HasSubstr("to gather unit 2 of its parameters"))));
}

// A model that is made without memory, or in the host's, goes to the GPU unit by unit. Its values are those
// of the same construction in one process, and so are those of what does not train.
RANKS_TEST(CudaUnits, AModelGoesToTheGpuAsItIsWrapped, Ranks(1, 2, 3), Backends("nccl")) {
  const Net alone = make_net(3, /*normalises=*/true);
  for (const int stage : {1, 2, 3}) {
    for (const bool is_deferred : {false, true}) {
      const auto make = [&] { return make_net(rank() == 0 ? 3 : 4, /*normalises=*/true); };
      Net net = is_deferred ? meta_init(make) : make();
      net->conv->bias.set_requires_grad(false);
      auto options = stage_3();
      options.stage = stage;
      options.device = at::kCUDA;
      ShardedDataParallel model(net, options);
      for (const at::Tensor& tensor : net->parameters()) EXPECT_EQ(tensor.device(), gpu_of(world()));
      for (const at::Tensor& tensor : net->buffers()) EXPECT_EQ(tensor.device(), gpu_of(world()));
      expect_close(net->named_parameters(), alone->named_parameters(), 0);
      expect_close(net->named_buffers(), alone->named_buffers(), 0);
      auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.01));
      const Batch batch = Batch::make(0).share(world());
      torch::cross_entropy_loss(model.forward(batch.data), batch.target).backward();
      optimizer.step();
      EXPECT_FALSE(net->out->weight.detach().cpu().equal(alone->out->weight));
    }
  }
}

RANKS_TEST(CudaUnits, AnotherRanksGpuIsRefused, Ranks(2), Backends("nccl")) {
  const auto other = static_cast<at::DeviceIndex>(1 - gpu_of(world()).index());
  auto options = stage_3();
  options.device = at::Device(at::kCUDA, other);
  EXPECT_THAT([&] { ShardedDataParallel(make_net(0), options); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("device is cuda:" + std::to_string(other)),
                                                   HasSubstr("this rank's in the group is cuda:"))));
}

RANKS_TEST(CudaUnits, ADeadRankSurfacesFromTheForward, Ranks(3), Backends("nccl"), Dies({2})) {
  auto net = layers(3, world());
  Model model(net, stage_3());
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.01));
  train(model, optimizer, world(), 2);
  weight_of(net, 0).detach().cpu();  // the hosts have not waited for each other's parts
  barrier(world());
  if (rank() == 2) die();
  EXPECT_THAT([&] { train(model, optimizer, world(), 2); }, ThrowsMessage<PeerLost>(HasSubstr("rank 2")));
}

}  // namespace
}  // namespace zero_units_test
}  // namespace lockstep::cuda_tests
