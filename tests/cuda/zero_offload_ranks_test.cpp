// What ShardedDataParallel keeps on the host, or in files, of a model on a GPU.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/compat/deepspeed/engine.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/in_memory.h"
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

// body(begin, end) for what this process maps of files in that folder.
template <typename Body> void for_each_mapping(const std::string& folder, Body body) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(folder + "/") == std::string::npos) continue;
    body(std::stoull(line, nullptr, 16), std::stoull(line.substr(line.find('-') + 1), nullptr, 16));
  }
}

bool lies_in_a_file_of(const std::string& folder, const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  bool lies = false;
  for_each_mapping(
      folder, [&](std::uintptr_t begin, std::uintptr_t end) { lies |= begin <= address && address < end; });
  return lies;
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

// The pages of a tensor that hold nothing else.
struct Pages {
  explicit Pages(const at::Tensor& tensor) {
    const auto at = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    begin = (at + SIZE - 1) / SIZE * SIZE;
    end = std::max(begin, (at + tensor.nbytes()) / SIZE * SIZE);
  }
  void* data() const { return reinterpret_cast<void*>(begin); }  // NOLINT(performance-no-int-to-ptr)
  bool are_in_memory() const {
    std::vector<unsigned char> in((end - begin) / SIZE);
    EXPECT_TRUE(in.empty() || ::mincore(data(), end - begin, in.data()) == 0);
    return std::all_of(in.begin(), in.end(), [](unsigned char page) { return (page & 1U) != 0; });
  }
  static constexpr std::uintptr_t SIZE = 4096;
  std::uintptr_t begin = 0, end = 0;
};

// The kernel keeps no page of files in that folder in memory.
void drop_files_of(const std::string& folder, const std::vector<at::Tensor>& tensors) {
  for_each_mapping(folder, [](std::uintptr_t begin, std::uintptr_t end) {
    ASSERT_EQ(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED), 0);  // NOLINT
  });
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    const std::string path = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!path.starts_with(folder + "/")) continue;
    const int file = std::stoi(entry.path().filename().string());
    ASSERT_EQ(::fdatasync(file), 0);
    ASSERT_EQ(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
  }
  if (testing::is_in_memory(folder)) return;
  for (const at::Tensor& tensor : tensors) {
    const Pages pages(tensor);
    EXPECT_TRUE(pages.begin == pages.end || !pages.are_in_memory());
  }
}

// While a unit is read and the next one is gathered, the kernel reads the one behind it. A unit has four
// megabytes: more than the kernel reads ahead by itself.
RANKS_TEST(CudaSharded, ReadsTheFileOfAUnitAhead, Ranks(1, 2, 3), Backends("nccl")) {
  constexpr std::int64_t WIDTH = 1024, LAYERS = 6;
  const testing::SharedFolder folder(world());
  std::vector<at::Tensor> shards;  // of weights and biases
  bool is_looked_at = false;
  torch::nn::Sequential net;
  for (std::int64_t layer = 0; layer < LAYERS; ++layer) {
    net->push_back(torch::nn::Linear(WIDTH, WIDTH));
    net->push_back(torch::nn::Functional([&, layer](const at::Tensor& x) {
      if (!is_looked_at || layer + 2 >= LAYERS) return x;
      const Pages pages(shards[static_cast<std::size_t>(2 * (layer + 2))]);
      const Deadline deadline = Deadline::in(std::chrono::seconds(60));
      while (!pages.are_in_memory() && !deadline.expired())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(pages.are_in_memory()) << "layer " << layer + 2;
      return x;
    }));
  }
  net->to(gpu_of(world()));
  ShardedDataParallel model(net, {.stage = 3,
                                  .offload = OffloadOptions{.folder = folder.path(), .parameters = true},
                                  .unit_mb = 4.001,
                                  .param_persistence_threshold = 0,
                                  .max_live_parameters = 2 * (WIDTH + 1) * WIDTH});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.01));
  shards = optimizer.param_groups()[0].params();
  ASSERT_EQ(shards.size(), 2 * LAYERS);
  for (const bool is_second : {false, true}) {
    if (is_second) drop_files_of(folder.path(), shards);
    is_looked_at = is_second;
    model.forward(at::ones({1, WIDTH}, at::TensorOptions(gpu_of(world())))).sum().backward();
    optimizer.step();
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
