// ShardedDataParallel on GPUs: what ranks compute there is what one process computes on the CPU with
// libtorch's optimisers and the whole batches.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/compat/deepspeed/engine.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_tests {
namespace zero_ranks_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int STEPS = 8;
constexpr double EXACT = 1e-11;
constexpr double MAX_NORM = 0.3;  // below that of every step

struct Way {
  int stage = 1;
  int backwards = 1;  // of a step
  bool clips = false;
  std::optional<OffloadOptions> offload = {};
};

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

// In stage 3 biases stay, and of three units there is room for one of the larger two, or one of these and the
// small one.
ShardedDataParallelOptions options_of(int stage, const ProcessGroup& group,
                                      const std::optional<OffloadOptions>& offload = {}) {
  return {.stage = stage,
          .bucket_cap_mb = 0.001,
          .process_group = group,
          .offload = offload,
          .unit_mb = 0.001,
          .param_persistence_threshold = 20,
          .max_live_parameters = 1200};
}

at::Tensor loss_of(const at::Tensor& output, const Batch& batch, const Way& way) {
  return torch::cross_entropy_loss(output, batch.target) / way.backwards;
}

template <typename Optimizer, typename Options>
Net train_alone(const Options& options, const Way& way, std::vector<double>& norms) {
  Net net = make_net(0);
  Optimizer optimizer(net->parameters(), options);
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad();
    for (int i = 0; i < way.backwards; ++i) {
      const Batch batch = Batch::make(step * way.backwards + i);
      loss_of(net->forward(batch.data, step % 3 != 1), batch, way).backward();
    }
    if (way.clips) norms.push_back(torch::nn::utils::clip_grad_norm_(net->parameters(), MAX_NORM));
    optimizer.step();
  }
  return net;
}

// Trains on this rank's GPU and compares with one process.
template <typename Optimizer, typename Alone, typename Options, typename AloneOptions>
void expect_same_training(const ProcessGroup& group, const Options& options,
                          const AloneOptions& alone_options, const Way& way) {
  std::vector<double> norms;
  const Net alone = train_alone<Alone>(alone_options, way, norms);
  Net net = make_net(/*seed=*/group.rank());  // another model on each rank, until it is wrapped
  net->to(gpu_of(group));
  ShardedDataParallel model(net, options_of(way.stage, group, way.offload));
  auto optimizer = model.template optimizer<Optimizer>(options);
  for (int step = 0; step < STEPS; ++step) {
    for (int i = 0; i < way.backwards; ++i) {
      const Batch batch = Batch::make(step * way.backwards + i).share(group);
      loss_of(model.forward(batch.data, step % 3 != 1), batch, way).backward();
    }
    if (way.clips) {
      const double norm = norms[static_cast<std::size_t>(step)];
      EXPECT_NEAR(model.clip_grad_norm_(MAX_NORM), norm, 1e-9 * norm);
      EXPECT_GT(norm, MAX_NORM);
    }
    optimizer.step();
  }
  for (const at::Tensor& shard : optimizer.param_groups()[0].params())
    EXPECT_EQ(shard.is_cpu(), way.offload.has_value());
  expect_close(net->named_parameters(), alone->named_parameters(), EXACT);
  EXPECT_TRUE(net->out->weight.is_cuda());
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
  for (const auto& [stage, offload] : {std::pair(1, nowhere), std::pair(2, nowhere), std::pair(2, to_host),
                                       std::pair(3, nowhere), std::pair(3, all_to_host)}) {
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

struct Run {
  Run(const ProcessGroup& ranks, int stage, const at::Device& place, int seed,
      const std::optional<OffloadOptions>& offload = {})
      : group(ranks), device(place), net(make_net(seed)), model(moved(), options_of(stage, ranks, offload)) {
    state.add("model", model).add("optimizer", optimizer);
  }
  Net moved() {
    net->to(device);
    return net;
  }
  void train(int begin, int end) {
    for (int step = begin; step < end; ++step) {
      const Batch batch = Batch::make(step).share(group);
      torch::cross_entropy_loss(model.forward(batch.data.to(device)), batch.target.to(device)).backward();
      optimizer.step();
    }
  }

  ProcessGroup group;
  at::Device device;
  Net net;
  ShardedDataParallel<NetImpl> model;
  ShardedOptimizer<optim::AdamW> optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(0.01));
  CheckpointState state;
};

// The state of an optimiser that steps on the host, in its memory and in a file.
RANKS_TEST(CudaSharded, OffloadsStateToTheHost, Ranks(2), Backends("nccl")) {
  const testing::SharedFolder folder(world());
  const auto options = optim::AdamWOptions(0.01).weight_decay(0.1);
  const auto alone = torch::optim::AdamWOptions(0.01).weight_decay(0.1);
  expect_same_training<optim::AdamW, torch::optim::AdamW>(
      world(), options, alone, {.stage = 2, .offload = OffloadOptions{.folder = folder.path()}});
  expect_same_training<torch::optim::AdamW, torch::optim::AdamW>(world(), alone, alone,
                                                                 {.offload = OffloadOptions{}});
  Net net = make_net(0);
  net->to(gpu_of(world()));
  ShardedDataParallel model(net, {.offload = OffloadOptions{}});
  auto optimizer = model.optimizer<optim::AdamW>(options);
  const Batch batch = Batch::make(0).share(world());
  torch::cross_entropy_loss(model.forward(batch.data), batch.target).backward();
  optimizer.step();
  for (const at::Tensor& shard : optimizer.param_groups()[0].params())
    EXPECT_TRUE(shard.is_pinned() || shard.numel() == 0);
  for (const auto& [name, tensor] : optimizer.state_dict()) EXPECT_TRUE(tensor.is_cpu()) << name;
}

// Saved on GPUs in one stage, loaded on GPUs in another one, and by a model in CPU memory.
RANKS_TEST(CudaSharded, CheckpointsGoFromAnyStageAndDeviceToAnyOther, Ranks(2, 3), Backends("nccl")) {
  const testing::SharedFolder folder(world());
  const at::Device gpu = gpu_of(world());
  for (const int stage : {1, 2, 3}) {
    const std::string path = folder / ("stage" + std::to_string(stage));
    Run saved(world(), stage, gpu, 1);
    saved.train(0, 3);
    save_checkpoint(path, saved.state, {.step = 3, .durable = false});
    saved.train(3, 5);
    torch::OrderedDict<std::string, at::Tensor> expected;
    for (const auto& item : saved.net->named_parameters())
      expected.insert(item.key(), item.value().detach().cpu());
    const int other = stage % 3 + 1;
    const auto expect_the_same = [&](const at::Device& device, const std::optional<OffloadOptions>& offload) {
      Run loaded(world(), other, device, 2, offload);
      load_checkpoint(path, loaded.state);
      loaded.train(3, 5);
      expect_close(loaded.net->named_parameters(), expected, EXACT);
      if (stage == 2) return;
      save_checkpoint(path + "again", loaded.state, {.step = 5, .durable = false});
      Run again(world(), stage, gpu, 3);
      load_checkpoint(path + "again", again.state);
      expect_close(again.net->named_parameters(), expected, EXACT);
    };
    expect_the_same(gpu, {});
    expect_the_same(gpu, OffloadOptions{.parameters = other == 3});
    expect_the_same(at::kCPU, {});
  }
}

// With state and parameters on the host, as DeepSpeed's configuration says it.
RANKS_TEST(CudaSharded, DeepSpeedsEngineOffloadsToTheHost, Ranks(2, 3), Backends("nccl")) {
  namespace deepspeed = compat::deepspeed;
  const nlohmann::json json = {
      {"train_batch_size", BATCH},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}, {"weight_decay", 0.1}}}}},
      {"zero_optimization",
       {{"stage", 3},
        {"stage3_param_persistence_threshold", 20},
        {"offload_optimizer", {{"device", "cpu"}}},
        {"offload_param", {{"device", "cpu"}}}}}};
  Net alone = make_net(0);
  alone->to(at::kFloat);
  Net net = make_net(0);
  net->to(gpu_of(world()), at::kFloat);
  torch::optim::AdamW expected(alone->parameters(), torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  auto [engine, optimizer, scheduler] =
      deepspeed::initialize(net, deepspeed::parse_config(json), {.process_group = world()});
  for (int step = 0; step < STEPS; ++step) {
    const Batch whole = Batch::make(step), mine = whole.share(world());
    engine.backward(torch::cross_entropy_loss(engine(mine.data.to(at::kFloat)), mine.target));
    engine.step();
    expected.zero_grad();
    torch::cross_entropy_loss(alone->forward(whole.data.to(at::kFloat)), whole.target).backward();
    expected.step();
  }
  for (const at::Tensor& shard : optimizer.param_groups()[0].params())
    EXPECT_TRUE(shard.is_pinned() || shard.numel() == 0);
  expect_close(net->named_parameters(), alone->named_parameters(), 1e-4);
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

RANKS_TEST(CudaSharded, OffloadsThatAreNotPossibleAreRefused, Ranks(2), Backends("nccl")) {
  Net net = make_net(0);
  net->to(gpu_of(world()));
  const testing::SharedFolder folder(world());
  const auto wrap = [&](int stage, const std::string& path) {
    return [&, stage, path] {
      ShardedDataParallel(net,
                          {.stage = stage, .offload = OffloadOptions{.folder = path, .parameters = true}});
    };
  };
  const std::string place = "the model is on cuda:" + std::to_string(gpu_of(world()).index());
  EXPECT_THAT(wrap(2, ""),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr(place), HasSubstr("This is stage 2"))));
  EXPECT_THAT(wrap(3, folder.path()),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr(place), HasSubstr("without a folder"))));
  Net on_host = make_net(0);
  EXPECT_THAT([&] { ShardedDataParallel(on_host, {.offload = OffloadOptions{}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("needs a folder")));
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
}  // namespace zero_ranks_test
}  // namespace lockstep::cuda_tests
