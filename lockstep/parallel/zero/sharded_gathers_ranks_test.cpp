// Stage 3 of ShardedDataParallel: what is in memory when, how parameters are read, written, saved and loaded,
// and what ranks learn that do not read the same.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/full_state_dict.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/meta_init.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "testing/tensors.h"

namespace lockstep {
namespace gathers {
namespace {

using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

constexpr int WIDTH = 200;
constexpr double PER_LAYER = 4.0 * (WIDTH * WIDTH + WIDTH);    // bytes
constexpr double UNIT_MB = PER_LAYER / (1024 * 1024) * 0.999;  // a layer is a unit

ShardedDataParallelOptions stage_3() {
  return {.stage = 3, .bucket_cap_mb = 0.05, .unit_mb = UNIT_MB, .param_persistence_threshold = 0};
}

torch::nn::Sequential layers(int count) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < count; ++i) net->push_back(torch::nn::Linear(WIDTH, WIDTH));
  return net;
}

at::Tensor weight_of(torch::nn::Sequential& net, int layer) {
  return net[static_cast<std::size_t>(layer)]->as<torch::nn::Linear>()->weight;
}

at::Tensor input_of(int step) {
  return random_values({2, WIDTH}, static_cast<std::uint64_t>(10 * step + get_rank()), at::kFloat);
}

// Bytes of pages that this process has in memory from the first to the last byte of the parameters.
double resident_bytes(const torch::nn::Sequential& net) {
  constexpr std::size_t PAGE = 4096;
  std::size_t begin = SIZE_MAX, end = 0;
  for (const at::Tensor& parameter : net->parameters()) {
    const auto at = reinterpret_cast<std::size_t>(parameter.const_data_ptr());
    begin = std::min(begin, at / PAGE * PAGE);
    end = std::max(end, at + parameter.nbytes());
  }
  std::vector<unsigned char> pages((end - begin + PAGE - 1) / PAGE);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()), 0);
  return static_cast<double>(PAGE) *
         static_cast<double>(
             std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1U) != 0; }));
}

// A rank has its part and what the option says; two ranks of a machine have together two parts, and once what
// the option says. Pages and chunks of the optimiser are what is left over.
RANKS_TEST(ShardedGathers, MemoryIsThatOfTheFormulas, Ranks(2, 4), Backends("tcp", "hierarchical")) {
  constexpr int LAYERS = 8;
  constexpr double ALL = LAYERS * PER_LAYER;
  constexpr double TOLERANCE = 0.05 * ALL;
  const double sharers = backend_name() == "hierarchical" ? 2 : 1;
  const double parts = sharers * ALL / size();
  const auto resident = [&](const torch::nn::Sequential& net) {
    comm::barrier(world()).wait();  // the other ranks are as far
    const double bytes = resident_bytes(net);
    comm::barrier(world()).wait();
    return bytes;
  };
  auto net = layers(LAYERS);
  ShardedDataParallel model(net, stage_3());
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  EXPECT_EQ(model.memory().is_shared, sharers > 1);
  EXPECT_NEAR(model.memory().parameters, (parts + 3 * PER_LAYER) / sharers, TOLERANCE);
  EXPECT_NEAR(resident(net), parts, TOLERANCE);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor loss = model.forward(input_of(step)).sum();
    const double there = resident(net);
    EXPECT_LE(there, sharers * model.memory().parameters + TOLERANCE);
    if (rank() == 0) EXPECT_GE(there, parts + 2 * PER_LAYER);  // the last layers are others'
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(resident(net), parts, TOLERANCE);
  }
}

RANKS_TEST(ShardedGathers, WhatStaysAndWhatIsLiveIsCounted, Ranks(2), Backends("tcp")) {
  constexpr int LAYERS = 8;
  constexpr double WEIGHT = 4.0 * WIDTH * WIDTH;
  auto options = stage_3();
  options.param_persistence_threshold = WIDTH;  // the biases
  options.max_live_parameters = 2 * WIDTH * WIDTH;
  const ShardedDataParallel model(layers(LAYERS), options);
  const double expected = LAYERS * (WEIGHT / size() + 4.0 * WIDTH) + 2 * WEIGHT;
  EXPECT_NEAR(model.memory().parameters, expected, 0.05 * LAYERS * WEIGHT);
  options.param_persistence_threshold = WIDTH * WIDTH;
  auto net = layers(LAYERS);
  const ShardedDataParallel whole(net, options);
  EXPECT_NEAR(whole.memory().parameters, LAYERS * PER_LAYER, 0.01 * LAYERS * PER_LAYER);
  EXPECT_NEAR(resident_bytes(net), LAYERS * PER_LAYER, 0.01 * LAYERS * PER_LAYER);
}

RANKS_TEST(ShardedGathers, CanBeWrittenReadAndLoaded, Ranks(1, 2, 3, 4), Backends("tcp", "hierarchical")) {
  auto net = layers(3);
  ShardedDataParallel model(net, stage_3());
  const auto first = model.state_dict();
  model.write_parameters([&] { weight_of(net, 1).mul_(2); });
  EXPECT_TRUE(model.state_dict()["1.weight"].equal(first["1.weight"] * 2));
  EXPECT_TRUE(weight_of(net, 1).detach().mul(1).equal(first["1.weight"] * 2));  // an operator gathers
  model.load_state_dict(first);
  for (const auto& item : model.state_dict())
    EXPECT_TRUE(item.value().equal(first[item.key()])) << item.key();
  std::ostringstream saved;
  float corner = 0;
  model.read_parameters([&] {  // on one rank alone, past all operators
    if (rank() == 0) torch::save(net, saved);
    corner = weight_of(net, 2).data_ptr<float>()[WIDTH * WIDTH - 1];
  });
  EXPECT_EQ(corner, first["2.weight"][-1][-1].item<float>());
  if (rank() != 0) return;
  auto loaded = layers(3);
  std::istringstream file(saved.str());
  torch::load(loaded, file);
  EXPECT_TRUE(weight_of(loaded, 1).equal(first["1.weight"]));
}

// What reads bytes past operators asks before, and names what is not there.
RANKS_TEST(ShardedGathers, ABareModelIsNotSaved, Ranks(2), Backends("tcp")) {
  const testing::SharedFolder folder(world());
  auto net = layers(2);
  ShardedDataParallel model(net, stage_3());
  const auto is_refused =
      ThrowsMessage<InvalidArgument>(HasSubstr("each rank has a part alone of tensor \"0.weight\""));
  EXPECT_THAT([&] { save_state_dict(*net, folder / "net.safetensors"); }, is_refused);
  CheckpointState state;
  state.add("model", *net);
  EXPECT_THAT([&] { save_checkpoint(folder / "run", state, {.step = 1}); },
              ThrowsMessage<Error>(HasSubstr("each rank has a part alone of tensor")));
  model.read_parameters([&] {
    if (rank() == 0) save_state_dict(*net, folder / "net.safetensors");
  });
  const auto whole = model.state_dict();
  if (rank() != 0) return;
  for (const auto& [name, tensor] : load_tensors(folder / "net.safetensors"))
    EXPECT_TRUE(tensor.equal(whole[name])) << name;
}

// Saved in one stage and loaded in another, with masters.
RANKS_TEST(ShardedGathers, CheckpointsGoIntoAnyStage, Ranks(1, 2, 4), Backends("tcp", "hierarchical")) {
  torch::set_num_threads(1);
  const testing::SharedFolder folder(world());
  const auto run = [&](int stage, const char* load, const char* save) {
    auto net = layers(3);
    net->to(at::kBFloat16);
    auto options = stage_3();
    options.stage = stage;
    options.master_weights = true;
    options.param_persistence_threshold = WIDTH;
    ShardedDataParallel model(net, options);
    auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
    CheckpointState state;
    state.add("model", model).add("optimizer", optimizer);
    if (load != nullptr) EXPECT_TRUE(load_checkpoint(folder / load, state));
    for (int step = 0; step < 2; ++step) {
      model.forward(input_of(step).to(at::kBFloat16)).square().mean().backward();
      optimizer.step();
    }
    if (save != nullptr) save_checkpoint(folder / save, state, {.step = 2});
    if (save != nullptr && stage == 3) write_full_state_dict(folder / "full.safetensors", model);
    std::vector<at::Tensor> values;
    for (const auto& item : model.state_dict()) values.push_back(item.value().detach().clone());
    return values;
  };
  const auto expect_equal = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                               const char* what) {
    for (std::size_t i = 0; i < b.size(); ++i) EXPECT_TRUE(a.at(i).equal(b[i])) << what << ": " << i;
  };
  run(1, nullptr, "one");
  const auto saved = run(3, nullptr, "three");
  const auto expected = run(1, "one", nullptr);
  expect_equal(run(3, "one", nullptr), expected, "stage 1 into stage 3");
  expect_equal(run(1, "three", nullptr), expected, "stage 3 into stage 1");
  expect_equal(run(3, "three", nullptr), expected, "stage 3 into stage 3");
  const NamedTensors full = load_tensors(folder / "full.safetensors");
  EXPECT_EQ(full.size(), saved.size());
  for (std::size_t i = 0; i < full.size(); ++i) {
    const bool is_one = std::any_of(saved.begin(), saved.end(), [&](const at::Tensor& tensor) {
      return tensor.sizes() == full[i].second.sizes() && tensor.equal(full[i].second);
    });
    EXPECT_TRUE(is_one) << full[i].first;
  }
}

// State in a file changes nothing. With parameters in a file each rank has all of them there.
RANKS_TEST(ShardedGathers, GoWithOffload, Ranks(1, 2), Backends("tcp")) {
  torch::set_num_threads(1);
  const testing::SharedFolder folder(world());
  const auto run = [](const std::optional<OffloadOptions>& offload) {
    auto net = layers(3);
    auto options = stage_3();
    options.offload = offload;
    ShardedDataParallel model(net, options);
    auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
    for (int step = 0; step < 2; ++step) {
      model.forward(input_of(step)).square().mean().backward();
      optimizer.step();
    }
    return std::pair(model.state_dict()["1.weight"].clone(), model.memory().parameters);
  };
  const auto [expected, bytes] = run(std::nullopt);
  EXPECT_TRUE(run(OffloadOptions{.folder = folder.path()}).first.equal(expected));
  const auto [values, in_file] = run(OffloadOptions{.folder = folder.path(), .parameters = true});
  EXPECT_TRUE(values.equal(expected));
  EXPECT_NEAR(in_file, 3 * PER_LAYER, 0.01 * PER_LAYER);
}

// Placed unit by unit: rank 0's values.
RANKS_TEST(ShardedGathers, AreMadeOfAModelWithoutMemory, Ranks(1, 3, 4), Backends("tcp", "hierarchical")) {
  auto expected = layers(3);
  auto net = meta_init([] { return layers(3); });
  ShardedDataParallel model(net, stage_3());
  const auto state = model.state_dict();
  for (const auto& item : expected->named_parameters())
    EXPECT_TRUE(state[item.key()].equal(item.value())) << item.key();
  // The observer of operators goes past tensors without memory, and says nothing of them.
  ::testing::internal::CaptureStderr();
  auto another = meta_init([] { return layers(3); });
  materialize(*another);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(weight_of(another, 1).equal(weight_of(expected, 1)));
}

// In the middle of training, on all ranks, of another length.
RANKS_TEST(ShardedGathers, AnEvaluationOfAllRanksChangesNothing, Ranks(1, 2, 4),
           Backends("tcp", "hierarchical")) {
  torch::set_num_threads(1);
  const auto run = [](int stage, bool evaluates) {
    auto net = layers(4);
    auto options = stage_3();
    options.stage = stage;
    ShardedDataParallel model(net, options);
    auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.01).momentum(0.9));
    std::vector<at::Tensor> values;
    for (int step = 0; step < 3; ++step) {
      for (int batch = 0; evaluates && batch < 2; ++batch) {
        const c10::InferenceMode inference(batch == 1);
        const at::NoGradGuard no_grad;
        values.push_back(model.forward(input_of(50 + batch)).clone());
      }
      model.forward(input_of(step)).square().mean().backward();
      optimizer.step();
    }
    values.push_back(model.state_dict()["3.weight"].clone());
    return values;
  };
  const auto values = run(3, true);
  EXPECT_TRUE(values.back().equal(run(3, false).back()));
  const auto expected = run(1, true);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(values.at(i).equal(expected[i])) << i;
}

// Reads three layers at a time, in an order that nobody has seen before. Every element of layer i is i plus
// the number of steps.
struct RandomReadsImpl : torch::nn::Module {
  static constexpr int LAYERS = 9;
  RandomReadsImpl() { net = register_module("net", layers(LAYERS)); }
  // The sum of all layers, for a gradient.
  at::Tensor forward(std::mt19937& numbers, int step) {
    for (int read = 0; read < 40; ++read) {
      const int a = static_cast<int>(numbers() % LAYERS), b = static_cast<int>(numbers() % LAYERS),
                c = static_cast<int>(numbers() % LAYERS);
      const at::Tensor some = at::stack({weight_of(net, a), weight_of(net, b), weight_of(net, c)});
      const at::Tensor expected = at::tensor({a + step, b + step, c + step}, at::kFloat).view({3, 1, 1});
      EXPECT_TRUE(some.eq(expected).all().item<bool>()) << a << ", " << b << ", " << c;
    }
    at::Tensor sum = at::zeros({});
    for (int i = 0; i < LAYERS; ++i) sum = sum + weight_of(net, i).sum();
    return sum;
  }
  torch::nn::Sequential net{nullptr};
};

RANKS_TEST(ShardedGathers, AnyOrderOfReadsFindsTheValues, Ranks(2, 3, 4), Backends("tcp", "hierarchical")) {
  for (const std::size_t live : {1UL, 3UL, 5UL, 20UL}) {
    auto net = std::make_shared<RandomReadsImpl>();
    auto options = stage_3();
    options.max_live_parameters = live * (WIDTH * WIDTH + WIDTH);
    options.prefetch_bucket_size = (live / 2) * (WIDTH * WIDTH + WIDTH);
    ShardedDataParallel model(net, options);
    auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(1.0));
    model.write_parameters([&] {
      for (int i = 0; i < RandomReadsImpl::LAYERS; ++i) weight_of(net->net, i).fill_(i);
    });
    std::mt19937 numbers(static_cast<unsigned>(live));  // the same on all ranks
    for (int step = 0; step < 6; ++step) {
      if (step % 2 == 1) {
        const at::NoGradGuard no_grad;
        model.forward(numbers, step);
      }
      model.forward(numbers, step).neg().backward();  // gradients of -1
      optimizer.step();
    }
  }
}

// Alike on all ranks: the next step is whole.
RANKS_TEST(ShardedGathers, AForwardThatThrowsOnAllRanksIsForgotten, Ranks(2, 4),
           Backends("tcp", "hierarchical")) {
  torch::set_num_threads(1);
  const auto run = [](bool throws) {
    auto net = layers(4);
    ShardedDataParallel model(net, stage_3());
    auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.01));
    for (int step = 0; step < 3; ++step) {
      if (throws && step == 1) {
        EXPECT_THROW(model.forward(at::ones({2, WIDTH + 1})), c10::Error);
      }
      model.forward(input_of(step)).square().mean().backward();
      optimizer.step();
    }
    return model.state_dict()["3.weight"].clone();
  };
  EXPECT_TRUE(run(true).equal(run(false)));
}

}  // namespace
}  // namespace gathers
}  // namespace lockstep
