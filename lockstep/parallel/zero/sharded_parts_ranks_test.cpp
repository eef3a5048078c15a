// Stage 3 of ShardedDataParallel, whose parameters are gathered while they are used: its bits are those of
// the other stages and of replicas.
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

namespace lockstep {
namespace parts {
namespace {

using testing::random_values;

constexpr int STEPS = 3;
constexpr double SMALL = 0.004;  // MiB, of buckets and of units

// Every parameter is gathered, one or a few at a time.
ShardedDataParallelOptions stage_3() {
  return {.stage = 3, .bucket_cap_mb = SMALL, .unit_mb = SMALL, .param_persistence_threshold = 0};
}
ShardedDataParallelOptions stage_of(int stage) { return {.stage = stage, .bucket_cap_mb = SMALL}; }

struct Training {
  int passes = 1;  // backwards of a step
  double clip = 0;
  at::ScalarType type = at::kFloat;
};

at::Tensor random_input(at::IntArrayRef sizes, int number, at::ScalarType type) {
  return random_values(sizes.vec(), static_cast<std::uint64_t>(100 * number + get_rank()), type);
}

at::Tensor random_tokens(std::int64_t most, int number) {
  return (at::arange(24, at::kLong) * (7 + number + get_rank())).remainder(most).view({4, 6});
}

struct MLPImpl : torch::nn::Module {
  MLPImpl() {
    in = register_module("in", torch::nn::Linear(24, 301));
    hidden = register_module("hidden", torch::nn::Linear(301, 203));
    out = register_module("out", torch::nn::Linear(203, 8));
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(hidden(torch::relu(in(x))))); }
  static at::Tensor input(int number, at::ScalarType type) { return random_input({4, 24}, number, type); }
  torch::nn::Linear in{nullptr}, hidden{nullptr}, out{nullptr};
};

// A batch normalisation, and parameters of which one is frozen, one tied and one never used.
struct CNNImpl : torch::nn::Module {
  CNNImpl() {
    conv = register_module("conv", torch::nn::Conv2d(1, 4, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    wide = register_module("wide", torch::nn::Linear(4 * 36, 700));
    unused = register_module("unused", torch::nn::Linear(30, 50));
    frozen = register_module("frozen", torch::nn::Linear(700, 8));
    for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
    tied = register_parameter("tied", random_values({8, 8}, 77, at::kFloat) * 0.3);
    same = register_parameter("same", tied);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = torch::relu(norm(conv(x))).flatten(1);
    return torch::tanh(torch::tanh(frozen(torch::tanh(wide(h)))).mm(tied)).mm(same.t());
  }
  static at::Tensor input(int number, at::ScalarType type) {
    return random_input({4, 1, 8, 8}, number, type);
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear wide{nullptr}, unused{nullptr}, frozen{nullptr};
  at::Tensor tied, same;
};

// Lists of parameters in one operator, lookups, attention, and a head tied to the embedding.
struct SentenceImpl : torch::nn::Module {
  SentenceImpl() {
    words = register_module("words", torch::nn::Embedding(50, 32));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(32, 32).num_layers(2)));
    attention = register_module("attention", torch::nn::MultiheadAttention(32, 4));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = std::get<0>(lstm(norm(words(tokens))));
    return torch::nn::functional::linear(std::get<0>(attention(x, x, x)), words->weight);
  }
  static at::Tensor input(int number, at::ScalarType /*type*/) { return random_tokens(50, number); }
  torch::nn::Embedding words{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::MultiheadAttention attention{nullptr};
};

// As it, with a part that is computed again in backward.
struct RecomputedImpl : SentenceImpl {
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = checkpoint(
        [this](const at::Tensor& numbers) { return std::get<0>(lstm(norm(words(numbers)))); }, tokens);
    return torch::nn::functional::linear(std::get<0>(attention(x, x, x)), words->weight);
  }
};

template <typename Net> std::shared_ptr<Net> make_net(const Training& training) {
  torch::manual_seed(static_cast<std::uint64_t>(get_rank()));  // rank 0's values count
  auto net = std::make_shared<Net>();
  net->to(training.type);
  return net;
}

using Values = std::vector<at::Tensor>;

// The losses of one step. Any model: the mean of what it makes, weighted.
template <typename Net, typename Model>
void run_passes(Model& model, int step, const Training& training, Values& values) {
  for (int pass = 0; pass < training.passes; ++pass) {
    const at::Tensor y = model.forward(Net::input(10 * step + pass, training.type)).to(at::kFloat);
    const at::Tensor loss = (y * at::linspace(-1, 1, y.size(-1))).tanh().square().mean();
    values.push_back(loss.detach().clone());
    loss.backward();
  }
}

// Losses, norms that clipping found, then parameters and buffers.
template <typename Net, typename Optimizer, typename Options>
Values train(ShardedDataParallelOptions sharded, const Options& options, const Training& training = {}) {
  auto net = make_net<Net>(training);
  sharded.master_weights = training.type != at::kFloat;
  ShardedDataParallel<Net> model(net, sharded);
  auto optimizer = model.template optimizer<Optimizer>(options);
  Values values;
  for (int step = 0; step < STEPS; ++step) {
    run_passes<Net>(model, step, training, values);
    if (training.clip > 0)
      values.push_back(at::scalar_tensor(model.clip_grad_norm_(training.clip), at::kDouble));
    optimizer.step();
  }
  for (const auto& item : model.state_dict()) values.push_back(item.value().detach().clone());
  return values;
}

template <typename Net, typename Optimizer, typename Options>
Values train_replicas(const Options& options, const Training& training = {}) {
  auto net = make_net<Net>(training);
  DistributedDataParallel<Net> model(net, {.find_unused_parameters = true});
  Optimizer optimizer(model.named_parameters().pairs(), options);
  Values values;
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad();
    run_passes<Net>(model, step, training, values);
    if (training.clip > 0)
      values.push_back(at::scalar_tensor(clip_grad_norm_(net->parameters(), training.clip), at::kDouble));
    optimizer.step();
  }
  for (const auto& item : net->named_parameters()) values.push_back(item.value().detach().clone());
  for (const auto& item : net->named_buffers()) values.push_back(item.value().detach().clone());
  return values;
}

void expect_equal(const Values& a, const Values& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].equal(b[i])) << what << ": " << i << ", off by " << (a[i] - b[i]).abs().max();
}

const optim::SGDOptions MOMENTUM = optim::SGDOptions(0.05).momentum(0.9);
const optim::AdamWOptions ADAM = optim::AdamWOptions(1e-2);
const optim::LAMBOptions LAMB = optim::LAMBOptions(1e-2).max_grad_norm(0.5);

RANKS_TEST(ShardedParts, HaveTheBitsOfStage1, Ranks(1, 2, 3, 4), Backends("tcp")) {
  torch::set_num_threads(1);
  const auto one = stage_of(1);
  expect_equal(train<MLPImpl, optim::SGD>(stage_3(), MOMENTUM), train<MLPImpl, optim::SGD>(one, MOMENTUM),
               "MLP");
  expect_equal(train<CNNImpl, optim::AdamW>(stage_3(), ADAM), train<CNNImpl, optim::AdamW>(one, ADAM), "CNN");
  expect_equal(train<CNNImpl, optim::LAMB>(stage_3(), LAMB), train<CNNImpl, optim::LAMB>(one, LAMB), "LAMB");
  expect_equal(train<SentenceImpl, optim::AdamW>(stage_3(), ADAM),
               train<SentenceImpl, optim::AdamW>(one, ADAM), "sentence");
  const auto torchs = torch::optim::AdamOptions(1e-2);
  expect_equal(train<MLPImpl, torch::optim::Adam>(stage_3(), torchs),
               train<MLPImpl, torch::optim::Adam>(one, torchs), "libtorch's Adam");
}

RANKS_TEST(ShardedParts, HaveTheBitsOfClippingAndMasters, Ranks(1, 2, 3, 4),
           Backends("tcp", "hierarchical")) {
  torch::set_num_threads(1);
  const auto one = stage_of(1);
  const Training clipped{.clip = 0.01};
  expect_equal(train<CNNImpl, optim::AdamW>(stage_3(), ADAM, clipped),
               train<CNNImpl, optim::AdamW>(one, ADAM, clipped), "clipped");
  const Training half{.clip = 0.05, .type = at::kBFloat16};
  expect_equal(train<MLPImpl, optim::AdamW>(stage_3(), ADAM, half),
               train<MLPImpl, optim::AdamW>(one, ADAM, half), "masters of bfloat16");
  expect_equal(train<SentenceImpl, optim::LAMB>(stage_3(), LAMB, half),
               train<SentenceImpl, optim::LAMB>(one, LAMB, half), "masters of bfloat16, LAMB");
}

// Several backwards of a step add averages, as in stage 2.
RANKS_TEST(ShardedParts, AccumulateAsStage2, Ranks(1, 2, 3, 4), Backends("tcp")) {
  torch::set_num_threads(1);
  const Training twice{.passes = 2, .clip = 0.01};
  expect_equal(train<CNNImpl, optim::AdamW>(stage_3(), ADAM, twice),
               train<CNNImpl, optim::AdamW>(stage_of(2), ADAM, twice), "CNN");
  expect_equal(train<SentenceImpl, optim::SGD>(stage_3(), MOMENTUM, twice),
               train<SentenceImpl, optim::SGD>(stage_of(2), MOMENTUM, twice), "sentence");
}

RANKS_TEST(ShardedParts, HaveTheBitsOfReplicas, Ranks(2, 3, 4), Backends("tcp", "hierarchical")) {
  torch::set_num_threads(1);
  const Training clipped{.clip = 0.01};
  expect_equal(train<MLPImpl, optim::SGD>(stage_3(), MOMENTUM), train_replicas<MLPImpl, optim::SGD>(MOMENTUM),
               "MLP");
  expect_equal(train<CNNImpl, optim::AdamW>(stage_3(), ADAM), train_replicas<CNNImpl, optim::AdamW>(ADAM),
               "CNN");
  expect_equal(train<SentenceImpl, optim::LAMB>(stage_3(), LAMB, clipped),
               train_replicas<SentenceImpl, optim::LAMB>(LAMB, clipped), "sentence");
}

// What stays, what goes and what is on its way is for memory and time alone.
RANKS_TEST(ShardedParts, BitsDoNotDependOnWhatIsThere, Ranks(3, 4), Backends("tcp", "hierarchical")) {
  torch::set_num_threads(1);
  const auto run = [](std::size_t stays, std::optional<std::size_t> live, std::optional<std::size_t> ahead) {
    ShardedDataParallelOptions options = stage_3();
    options.param_persistence_threshold = stays;
    options.max_live_parameters = live;
    options.prefetch_bucket_size = ahead;
    return train<SentenceImpl, optim::AdamW>(options, ADAM);
  };
  const Values expected = run(0, std::nullopt, std::nullopt);
  expect_equal(run(64, std::nullopt, std::nullopt), expected, "small parameters stay");
  expect_equal(run(100'000, std::nullopt, std::nullopt), expected, "all parameters stay");
  expect_equal(run(0, std::nullopt, 0), expected, "nothing ahead");
  expect_equal(run(0, 1, std::nullopt), expected, "one unit at a time");
  expect_equal(run(0, 1'000'000'000, 50'000'000), expected, "DeepSpeed's defaults");
  expect_equal(run(0, 12'000, 6000), expected, "some room, several ahead");
  expect_equal(train<RecomputedImpl, optim::AdamW>(stage_3(), ADAM), expected, "computed again");
}

// One copy for all: nothing is gathered.
RANKS_TEST(ShardedParts, AreStage2WhereRanksShareMemory, Ranks(2), Backends("shm")) {
  torch::set_num_threads(1);
  const ShardedDataParallel model(std::make_shared<MLPImpl>(), stage_3());
  EXPECT_TRUE(model.memory().is_shared);
  expect_equal(train<CNNImpl, optim::AdamW>(stage_3(), ADAM), train<CNNImpl, optim::AdamW>(stage_of(2), ADAM),
               "CNN");
}

}  // namespace
}  // namespace parts
}  // namespace lockstep
