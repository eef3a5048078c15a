// What ShardedDataParallel keeps on the host, or in files, of a model on a GPU.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/compat/deepspeed/engine.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "tests/cuda/sharded_training.h"

namespace lockstep::cuda_tests {
namespace sharded::zero_offload_ranks_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

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

bool lies_in_a_file_of(const std::string& folder, const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::uintptr_t begin = std::stoull(line, nullptr, 16);
    const std::uintptr_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    if (begin <= address && address < end) return line.find(folder + "/") != std::string::npos;
  }
  return false;
}

// A rank's parts of the parameters, and the state of its optimiser.
RANKS_TEST(CudaSharded, OffloadsEverythingToFiles, Ranks(1, 2, 3), Backends("nccl")) {
  const testing::SharedFolder folder(world());
  const OffloadOptions to_files{.folder = folder.path(), .parameters = true};
  const auto options = optim::AdamWOptions(0.01).weight_decay(0.1);
  for (const int backwards : {1, 2})
    expect_same_training<optim::AdamW, torch::optim::AdamW>(
        world(), options, torch::optim::AdamWOptions(0.01).weight_decay(0.1),
        {.stage = 3, .backwards = backwards, .clips = backwards == 2, .offload = to_files});
  ShardedRun run(world(), 3, gpu_of(world()), 0, to_files);
  run.train(0, 1);
  for (const at::Tensor& shard : run.optimizer.param_groups()[0].params())
    EXPECT_TRUE(shard.numel() == 0 || lies_in_a_file_of(folder.path(), shard.const_data_ptr()))
        << shard.sizes();
  for (const auto& [name, tensor] : run.optimizer.state_dict()) {
    if (name.starts_with("state.") && tensor.numel() > 1)
      EXPECT_TRUE(lies_in_a_file_of(folder.path(), tensor.const_data_ptr())) << name;
  }
}

// What DeepSpeed's configuration says: state and parameters on the host, or in files.
void train_with_engine(const ProcessGroup& group, const nlohmann::json& offload,
                       const std::function<bool(const at::Tensor&)>& is_in_place) {
  namespace deepspeed = compat::deepspeed;
  const nlohmann::json json = {
      {"train_batch_size", BATCH},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}, {"weight_decay", 0.1}}}}},
      {"zero_optimization",
       {{"stage", 3},
        {"stage3_param_persistence_threshold", 20},
        {"offload_optimizer", offload},
        {"offload_param", offload}}}};
  Net alone = make_net(0);
  alone->to(at::kFloat);
  Net net = make_net(0);
  net->to(gpu_of(group), at::kFloat);
  torch::optim::AdamW expected(alone->parameters(), torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  auto [engine, optimizer, scheduler] =
      deepspeed::initialize(net, deepspeed::parse_config(json), {.process_group = group});
  for (int step = 0; step < STEPS; ++step) {
    const Batch whole = Batch::make(step), mine = whole.share(group);
    engine.backward(torch::cross_entropy_loss(engine(mine.data.to(at::kFloat)), mine.target));
    engine.step();
    expected.zero_grad();
    torch::cross_entropy_loss(alone->forward(whole.data.to(at::kFloat)), whole.target).backward();
    expected.step();
  }
  for (const at::Tensor& shard : optimizer.param_groups()[0].params())
    EXPECT_TRUE(shard.numel() == 0 || is_in_place(shard)) << offload;
  expect_close(net->named_parameters(), alone->named_parameters(), 1e-4);
}

RANKS_TEST(CudaSharded, DeepSpeedsEngineOffloads, Ranks(2, 3), Backends("nccl")) {
  const testing::SharedFolder folder(world());
  train_with_engine(world(), {{"device", "cpu"}}, [](const at::Tensor& shard) { return shard.is_pinned(); });
  train_with_engine(
      world(), {{"device", "nvme"}, {"nvme_path", folder.path()}},
      [&](const at::Tensor& shard) { return lies_in_a_file_of(folder.path(), shard.const_data_ptr()); });
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
  for (const std::string& path : {std::string(), folder.path()})
    EXPECT_THAT(wrap(2, path),
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr(place), HasSubstr("This is stage 2"))));
  Net on_host = make_net(0);
  EXPECT_THAT([&] { ShardedDataParallel(on_host, {.offload = OffloadOptions{}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("needs a folder")));
  EXPECT_THAT(wrap(3, folder / "none"), ThrowsMessage<SystemError>(HasSubstr(folder / "none")));
}

}  // namespace
}  // namespace sharded::zero_offload_ranks_test
}  // namespace lockstep::cuda_tests
