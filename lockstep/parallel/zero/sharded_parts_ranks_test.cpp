// Stage 3 of ShardedDataParallel: parameters that are gathered while they are used. Bits, memory, state,
// failures.
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "testing/tensors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

constexpr int STEPS = 3;
constexpr double SMALL = 0.004;  // MiB, of buckets and of units

// A picture's parameters, one of them frozen, one tied, one never used.
struct PictureImpl : torch::nn::Module {
  PictureImpl() {
    conv = register_module("conv", torch::nn::Conv2d(1, 4, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    wide = register_module("wide", torch::nn::Linear(4 * 36, 700));
    unused = register_module("unused", torch::nn::Linear(30, 50));
    frozen = register_module("frozen", torch::nn::Linear(700, 8));
    for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
    tied = register_parameter("tied", random_values({8, 8}, 77, at::kFloat) * 0.3);
    same = register_parameter("same", tied);
  }
  at::Tensor loss(int number) {
    const auto seed = static_cast<std::uint64_t>(100 * number + get_rank());
    const at::Tensor x = random_values({4, 1, 8, 8}, seed, at::kFloat);
    const at::Tensor h = torch::relu(norm(conv(x))).flatten(1);
    const at::Tensor y = torch::tanh(torch::tanh(frozen(torch::tanh(wide(h)))).mm(tied)).mm(same.t());
    return torch::nn::functional::cross_entropy(y, (at::arange(4, at::kLong) * 5 + number).remainder(8));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear wide{nullptr}, unused{nullptr}, frozen{nullptr};
  at::Tensor tied, same;
};

// A sentence's: lists of parameters in one operator, lookups, attention, a head tied to the embedding.
struct SentenceImpl : torch::nn::Module {
  SentenceImpl() {
    words = register_module("words", torch::nn::Embedding(50, 32));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
    in = register_module("in", torch::nn::Linear(32, 128));
    out = register_module("out", torch::nn::Linear(128, 32));
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(32, 32).num_layers(2)));
    attention = register_module("attention", torch::nn::MultiheadAttention(32, 4));
  }
  at::Tensor loss(int number) {
    const at::Tensor tokens =
        (at::arange(20, at::kLong) * (7 + number + get_rank())).remainder(50).view({5, 4});
    at::Tensor x = norm(words(tokens));
    x = std::get<0>(lstm(x + out(torch::gelu(in(x)))));
    x = std::get<0>(attention(x, x, x));
    return torch::nn::functional::linear(x, words->weight).pow(2).mean();
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::MultiheadAttention attention{nullptr};
};

using Values = std::vector<at::Tensor>;

template <typename Net> Values train(int stage, int passes = 1) {
  torch::manual_seed(static_cast<std::uint64_t>(get_rank()));
  auto net = std::make_shared<Net>();
  ShardedDataParallel model(net, {.stage = stage, .bucket_cap_mb = SMALL, .unit_mb = SMALL});
  auto optimizer = model.template optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
  Values values;
  for (int step = 0; step < STEPS; ++step) {
    for (int pass = 0; pass < passes; ++pass) {
      const at::Tensor loss = net->loss(10 * step + pass);
      values.push_back(loss.detach().clone());
      loss.backward();
    }
    if (step == 1) values.push_back(at::scalar_tensor(model.clip_grad_norm_(0.1), at::kDouble));
    optimizer.step();
  }
  for (const auto& item : model.state_dict()) values.push_back(item.value().detach().clone());
  return values;
}

void expect_equal(const Values& a, const Values& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].equal(b[i])) << what << ": " << i << ", off by " << (a[i] - b[i]).abs().max();
}

RANKS_TEST(ShardedParts, HaveTheBitsOfTheOtherStages, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  expect_equal(train<PictureImpl>(3), train<PictureImpl>(1), "picture");
  expect_equal(train<SentenceImpl>(3), train<SentenceImpl>(1), "sentence");
  expect_equal(train<SentenceImpl>(3, 2), train<SentenceImpl>(2, 2), "two backwards a step");
}

RANKS_TEST(ShardedParts, MemoryIsThatOfTheFormulas, Ranks(2, 4), Backends("tcp")) {
  constexpr double LAYER = 4.0 * (256 * 256 + 256);
  torch::nn::Sequential net;
  for (int i = 0; i < 8; ++i) net->push_back(torch::nn::Linear(256, 256));
  ShardedDataParallel model(net, {.stage = 3, .unit_mb = 0.2505});  // a layer is a unit
  EXPECT_NEAR(model.memory().parameters, 8 * LAYER / size() + 3 * LAYER, 0.05 * 8 * LAYER);
}

RANKS_TEST(ShardedParts, CanBeWrittenReadAndLoaded, Ranks(1, 2, 3), Backends("tcp")) {
  torch::manual_seed(static_cast<std::uint64_t>(rank()));
  auto net = std::make_shared<PictureImpl>();
  ShardedDataParallel model(net, {.stage = 3, .unit_mb = SMALL});
  const auto first = model.state_dict();
  model.write_parameters([&] { net->wide->weight.mul_(2); });
  EXPECT_TRUE(model.state_dict()["wide.weight"].equal(first["wide.weight"] * 2));
  EXPECT_TRUE(net->wide->weight.detach().mul(1).equal(first["wide.weight"] * 2));  // an operator gathers
  model.load_state_dict(first);
  const auto again = model.state_dict();
  for (const auto& item : first) EXPECT_TRUE(item.value().equal(again[item.key()])) << item.key();
}

// Saved in one stage and loaded in another.
RANKS_TEST(ShardedParts, CheckpointsGoIntoAnyStage, Ranks(1, 2, 3), Backends("tcp")) {
  torch::set_num_threads(1);
  const testing::SharedFolder folder(world());
  const auto run = [&](int stage, const char* load, const char* save) {
    torch::manual_seed(5);
    auto net = std::make_shared<PictureImpl>();
    ShardedDataParallel model(net, {.stage = stage, .bucket_cap_mb = SMALL, .unit_mb = SMALL});
    auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
    CheckpointState state;
    state.add("model", model).add("optimizer", optimizer);
    if (load != nullptr) EXPECT_TRUE(load_checkpoint(folder / load, state));
    for (int step = 0; step < 2; ++step) {
      net->loss(step).backward();
      optimizer.step();
    }
    if (save != nullptr) save_checkpoint(folder / save, state, {.step = 2});
    Values values;
    for (const auto& item : model.state_dict()) values.push_back(item.value().detach().clone());
    return values;
  };
  run(1, nullptr, "one");
  run(3, nullptr, "three");
  const Values expected = run(1, "one", nullptr);
  expect_equal(run(3, "one", nullptr), expected, "stage 1 into stage 3");
  expect_equal(run(1, "three", nullptr), expected, "stage 3 into stage 1");
  expect_equal(run(3, "three", nullptr), expected, "stage 3 into stage 3");
}

constexpr int WIDTH = 100;

torch::nn::Sequential three_layers() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(WIDTH, WIDTH), torch::nn::Linear(WIDTH, WIDTH),
                               torch::nn::Linear(WIDTH, 3));
}

RANKS_TEST(ShardedParts, ARankThatReadsAnotherUnitIsTold, Ranks(2), Backends("tcp")) {
  auto net = three_layers();
  ShardedDataParallel model(net, {.stage = 3, .unit_mb = SMALL});
  const at::Tensor weight = net[1 - rank()]->as<torch::nn::Linear>()->weight;  // which the other rank keeps
  const at::Tensor sum = weight.detach().sum();
  EXPECT_TRUE(sum.isnan().item<bool>());
  EXPECT_THAT(
      [&] {
        model.forward(at::ones({2, WIDTH}));
      },
      ThrowsMessage<Mismatch>(HasSubstr("the unit of parameter")));
}

// An operator that cannot have its parameters computes NaN, and forward() says why.
RANKS_TEST(ShardedParts, SurvivorsOfAForwardAreToldWhoDied, Ranks(2, 3), Dies({1}), Backends("tcp"),
           Variable("LOCKSTEP_FAIL_POINT", "zero.gather@1+9=kill")) {
  auto net = three_layers();
  ShardedDataParallel model(net, {.stage = 3, .bucket_cap_mb = SMALL, .unit_mb = SMALL});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  EXPECT_THAT(
      [&] {
        for (int step = 0; step < 9; ++step) {
          model.forward(at::ones({2, WIDTH})).sum().backward();
          optimizer.step();
        }
      },
      ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
}

}  // namespace
}  // namespace lockstep
