// The stages of ShardedDataParallel: bits and memory.
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <random>

#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

namespace lockstep {
namespace stages {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

constexpr int BATCH = 4;
constexpr int STEPS = 3;
constexpr double SMALL_BUCKETS = 0.004;  // MiB: several buckets, and gradients that travel alone

// Parameters that are cut over ranks and small ones, one of them frozen, one tied, one never used.
struct MixedImpl : torch::nn::Module {
  explicit MixedImpl(at::ScalarType type) {
    conv = register_module("conv", torch::nn::Conv2d(1, 4, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    wide = register_module("wide", torch::nn::Linear(4 * 36, 700));  // more than one chunk of the optimisers
    unused = register_module("unused", torch::nn::Linear(30, 50));
    frozen = register_module("frozen", torch::nn::Linear(700, 8));
    for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
    tied = register_parameter("tied", random_values({8, 8}, 77) * 0.3);
    same = register_parameter("same", tied);
    to(type);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = torch::relu(norm(conv(x))).flatten(1);
    return torch::tanh(torch::tanh(frozen(torch::tanh(wide(h)))).mm(tied)).mm(same.t());
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear wide{nullptr}, unused{nullptr}, frozen{nullptr};
  at::Tensor tied, same;
};

struct Training {
  int passes = 1;  // backwards of a step
  double clip = 0;
  at::ScalarType type = at::kFloat;
};

std::shared_ptr<MixedImpl> make_net(const Training& training) {
  torch::manual_seed(static_cast<std::uint64_t>(get_rank()));
  return std::make_shared<MixedImpl>(training.type);
}

// Of one rank in one pass.
at::Tensor loss_of(MixedImpl& net, int number, const Training& training) {
  const auto seed = static_cast<std::uint64_t>(100 * number + get_rank());
  const at::Tensor labels = (at::arange(BATCH, at::kLong) * 5 + number).remainder(8);
  return torch::nn::functional::cross_entropy(
      net.forward(random_values({BATCH, 1, 8, 8}, seed, training.type)), labels);
}

using Values = std::vector<at::Tensor>;

void append_state(Values& values, torch::nn::Module& net) {
  for (const auto& item : net.named_parameters()) values.push_back(item.value().detach().clone());
  for (const auto& item : net.named_buffers()) values.push_back(item.value().detach().clone());
}

// The norms that clipping found, then parameters and buffers.
template <typename Optimizer, typename Options>
Values train(int stage, const Options& options, const Training& training) {
  auto net = make_net(training);
  ShardedDataParallel model(net, {.stage = stage, .bucket_cap_mb = SMALL_BUCKETS});
  auto optimizer = model.template optimizer<Optimizer>(options);
  Values values;
  for (int step = 0; step < STEPS; ++step) {
    for (int pass = 0; pass < training.passes; ++pass) {
      model.train();
      loss_of(*net, 10 * step + pass, training).backward();
    }
    if (training.clip > 0)
      values.push_back(at::scalar_tensor(model.clip_grad_norm_(training.clip), at::kDouble));
    optimizer.step();
  }
  append_state(values, *net);
  return values;
}

void expect_equal(const Values& a, const Values& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].equal(b[i])) << what << ": " << i << ", off by " << (a[i] - b[i]).abs().max();
}

RANKS_TEST(ShardedStages, OfOneBackwardHaveTheSameBits, Ranks(1, 2, 3, 4),
           Backends("shm", "tcp", "hierarchical")) {
  torch::set_num_threads(1);
  const Training plain;
  const Training clipped{.clip = 0.1};
  const Training half{.type = at::kBFloat16};
  const auto adam = optim::AdamWOptions(1e-2);
  expect_equal(train<optim::AdamW>(2, adam, plain), train<optim::AdamW>(1, adam, plain), "AdamW");
  expect_equal(train<optim::AdamW>(2, adam, clipped), train<optim::AdamW>(1, adam, clipped), "clipped");
  expect_equal(train<optim::AdamW>(2, adam, half), train<optim::AdamW>(1, adam, half), "bfloat16");
  const auto lamb = optim::LAMBOptions(1e-2).max_grad_norm(0.5);
  expect_equal(train<optim::LAMB>(2, lamb, plain), train<optim::LAMB>(1, lamb, plain), "LAMB");
  const auto torchs = torch::optim::AdamOptions(1e-2);
  expect_equal(train<torch::optim::Adam>(2, torchs, plain), train<torch::optim::Adam>(1, torchs, plain),
               "libtorch's Adam");
}

// DistributedDataParallel averages over the same ranks, in other buckets.
RANKS_TEST(ShardedStages, HaveTheBitsOfReplicas, Ranks(2, 3), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  const Training training;
  auto net = make_net(training);
  DistributedDataParallel replicas(net, {.find_unused_parameters = true});
  optim::AdamW optimizer(replicas.named_parameters().pairs(), optim::AdamWOptions(1e-2));
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad();
    const at::Tensor labels = (at::arange(BATCH, at::kLong) * 5 + 10 * step).remainder(8);
    const auto seed = static_cast<std::uint64_t>(1000 * step + rank());
    torch::nn::functional::cross_entropy(replicas.forward(random_values({BATCH, 1, 8, 8}, seed, at::kFloat)),
                                         labels)
        .backward();
    optimizer.step();
  }
  Values expected;
  for (const auto& item : net->named_parameters()) expected.push_back(item.value().detach().clone());
  Values values = train<optim::AdamW>(2, optim::AdamWOptions(1e-2), training);
  values.resize(expected.size());  // without buffers, which this model's forward() did not broadcast
  expect_equal(values, expected, "replicas");
}

// Averages of sums and sums of averages: equal but for rounding.
RANKS_TEST(ShardedStages, AddUpSeveralBackwards, Ranks(2, 3, 4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  const Training training{.passes = 3, .type = at::kDouble};
  const auto options = optim::SGDOptions(0.1).momentum(0.9);
  const Values one = train<optim::SGD>(1, options, training);
  const Values two = train<optim::SGD>(2, options, training);
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_LT((one[i] - two[i]).abs().max().item<double>(), 1e-12) << i;
}

// The formula: the mean over ranks of rank + pass, added over the passes.
RANKS_TEST(ShardedStages, AveragesAreThoseOfAllBackwards, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  auto net = std::make_shared<torch::nn::LinearImpl>(300, 400);
  ShardedDataParallel model(net, {.stage = 2, .bucket_cap_mb = SMALL_BUCKETS});
  const at::Tensor base = (at::arange(400 * 300, at::kFloat).remainder(64)).view({400, 300});
  for (int step = 0; step < 2; ++step) {
    for (int pass = 0; pass < 2; ++pass)
      (net->weight * (base * static_cast<float>(rank() + pass))).sum().backward();
    const NamedTensors averages = model.average_gradients();
    const double factor = (size() - 1) / 2.0 * 2 + 1;
    EXPECT_TRUE(at::allclose(averages[0].second, base * factor));
    EXPECT_FALSE(averages[1].second.defined());  // no rank used the bias
    EXPECT_FALSE(net->weight.grad().defined());
    model.zero_grad();
  }
}

RANKS_TEST(ShardedStages, StepWhatAnyRankUsed, Ranks(1, 2, 3), Backends("shm", "tcp")) {
  auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
  {
    const at::NoGradGuard no_grad;
    net->weight.fill_(1);
    net->bias.fill_(1);
  }
  ShardedDataParallel model(net, {.stage = 2});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(1.0));
  if (rank() == size() - 1) (net->weight * 6.0).sum().backward();  // the other ranks run no backward
  optimizer.step();
  EXPECT_TRUE(at::allclose(net->weight, at::full({2, 3}, 1 - 6.0 / size())));
  EXPECT_TRUE(net->bias.equal(at::ones({2})));
  optimizer.step();  // no rank has a gradient
  EXPECT_TRUE(at::allclose(net->weight, at::full({2, 3}, 1 - 6.0 / size())));
  net->bias.mutable_grad() = at::full({2}, static_cast<float>(rank()));  // set by the program
  optimizer.step();
  EXPECT_TRUE(at::allclose(net->bias, at::full({2}, 1 - (size() - 1) / 2.0)));
}

// A gradient that the program keeps has this rank's values for good.
RANKS_TEST(ShardedStages, KeptGradientsKeepTheirValues, Ranks(2), Backends("shm", "tcp")) {
  auto net = std::make_shared<torch::nn::LinearImpl>(200, 100);
  ShardedDataParallel model(net, {.stage = 2, .bucket_cap_mb = SMALL_BUCKETS});
  at::Tensor kept;
  net->weight.register_hook([&](const at::Tensor& gradient) { kept = gradient; });
  for (int pass = 0; pass < 2; ++pass) {
    (net->weight * static_cast<double>(rank() + 1)).sum().backward();
    EXPECT_TRUE(kept.equal(at::full({100, 200}, rank() + 1.0F)));
  }
  EXPECT_TRUE(model.average_gradients()[0].second.equal(at::full({100, 200}, 3.0F)));
}

double gradient_bytes(int stage, double bucket_mb) {
  torch::nn::Sequential net;
  for (int i = 0; i < 8; ++i) net->push_back(torch::nn::Linear(256, 256));
  ShardedDataParallel model(net, {.stage = stage, .bucket_cap_mb = bucket_mb});
  return model.memory().gradients;
}

// P of stage 1, P / N and two buckets of stage 2, whose last gradient may pass the cap.
RANKS_TEST(ShardedStages, MemoryIsThatOfTheFormulas, Ranks(2, 4), Backends("shm", "tcp")) {
  constexpr double LAYER = 4.0 * (256 * 256 + 256);
  constexpr double ALL = 8 * LAYER;
  EXPECT_NEAR(gradient_bytes(1, 1), ALL, 0.05 * ALL);
  EXPECT_NEAR(gradient_bytes(2, 0.2505), ALL / size() + 2 * LAYER,
              0.05 * ALL / size());                               // a layer is a bucket
  const double packed = backend_name() == "shm" ? 2 * LAYER : 0;  // else weights travel alone
  EXPECT_NEAR(gradient_bytes(2, 0.1), ALL / size() + packed, 0.05 * ALL / size());
}

at::Tensor train_late(bool is_late) {
  constexpr int MANY = 100;
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(60, 60), torch::nn::Linear(60, 60), torch::nn::Linear(60, 9));
  ShardedDataParallel model(net, {.stage = 2, .bucket_cap_mb = SMALL_BUCKETS});
  auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
  std::mt19937 random(static_cast<unsigned>(get_rank()));
  const auto wait = [&] {
    if (!is_late || random() % 2 == 0) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 300);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  for (int step = 0; step < MANY; ++step) {
    at::Tensor x = random_values({2, 60}, static_cast<std::uint64_t>(4 * step + get_rank()), at::kFloat);
    wait();
    x = model.forward(x).pow(2);
    x.register_hook([&](const at::Tensor&) { wait(); });
    x.sum().backward();
    wait();
    if (step % 3 == 0) model.clip_grad_norm_(1.0);
    wait();
    optimizer.step();
  }
  return model.parameters().front().detach().clone();
}

RANKS_TEST(ShardedStages, LateRanksDoNotShowInTheBits, Ranks(2, 3), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  const at::Tensor expected = train_late(/*is_late=*/false);
  EXPECT_TRUE(train_late(/*is_late=*/true).equal(expected));
}

}  // namespace
}  // namespace stages
}  // namespace lockstep
