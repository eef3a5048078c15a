// ShardedDataParallel beside DistributedDataParallel with the same optimiser, bit for bit, and beside one
// process that has the whole batch.
#include "lockstep/parallel/zero/sharded_data_parallel.h"

#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "lockstep/optim/adam.h"
#include "lockstep/optim/chunks.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

namespace lockstep {
namespace sharded_data_parallel_test {
namespace {

using testing::random_values;

constexpr int BATCH = 12;  // divides by 1, 2, 3 and 4
constexpr int STEPS = 4;

// Parameters that are cut over ranks and small ones, one of them frozen and one tied.
struct MixedImpl : torch::nn::Module {
  explicit MixedImpl(at::ScalarType type = at::kFloat) {
    conv = register_module("conv", torch::nn::Conv2d(1, 4, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    wide = register_module("wide", torch::nn::Linear(4 * 36, 700));  // more than one chunk of the optimisers
    frozen = register_module("frozen", torch::nn::Linear(700, 8));
    for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
    tied = register_parameter("tied", random_values({8, 8}, 77) * 0.3);
    same = register_parameter("same", tied);
    to(type);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = torch::relu(norm(conv(x))).flatten(1);
    const at::Tensor small = torch::tanh(frozen(torch::tanh(wide(h))));
    return torch::tanh(small.mm(tied)).mm(same.t());
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear wide{nullptr}, frozen{nullptr};
  at::Tensor tied, same;
};

at::Tensor input(int step, at::ScalarType type) {
  return random_values({BATCH, 1, 8, 8}, 100 + static_cast<std::uint64_t>(step), type);
}
at::Tensor target(int step) { return (at::arange(BATCH, at::kLong) * 5 + step).remainder(8); }

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(output, labels);
}

struct Training {
  int accumulated = 1;
  double clip = 0;  // 0: no clipping
  at::ScalarType type = at::kFloat;
};

std::shared_ptr<MixedImpl> make_net(int seed, at::ScalarType type) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return std::make_shared<MixedImpl>(type);
}

at::Tensor share(const at::Tensor& batch) {
  const int part = BATCH / get_world_size();
  return batch.narrow(0, get_rank() * part, part);
}

// Runs forward and backward of one step on this rank's share. `sync`: of the last micro-batch.
template <typename Model> void accumulate(Model& model, int step, const Training& training) {
  for (int micro = 0; micro < training.accumulated; ++micro) {
    const int number = step * 10 + micro;
    const auto run = [&] {
      loss_of(model.forward(share(input(number, training.type))), share(target(number))).backward();
    };
    if constexpr (requires { model.no_sync(); }) {
      if (micro + 1 < training.accumulated) {
        const auto guard = model.no_sync();
        run();
        continue;
      }
    }
    run();
  }
}

using Values = std::vector<at::Tensor>;

Values values_of(torch::nn::Module& net) {
  Values values;
  for (const auto& item : net.named_parameters()) values.push_back(item.value().detach().clone());
  for (const auto& item : net.named_buffers()) values.push_back(item.value().detach().clone());
  return values;
}

// The norms that clipping found, then parameters and buffers.
template <typename Optimizer, typename Options>
Values train_replicas(const Options& options, const Training& training) {
  auto net = make_net(get_rank(), training.type);
  DistributedDataParallel model(net);
  Optimizer optimizer(model.named_parameters().pairs(), options);
  Values values;
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad();
    accumulate(model, step, training);
    if (training.clip > 0)
      values.push_back(at::scalar_tensor(clip_grad_norm_(model.parameters(), training.clip), at::kDouble));
    optimizer.step();
  }
  const Values state = values_of(*net);
  values.insert(values.end(), state.begin(), state.end());
  return values;
}

template <typename Optimizer, typename Options>
Values train_shards(const Options& options, const Training& training) {
  auto net = make_net(get_rank() + 100 * (1 - (get_rank() == 0)), training.type);
  ShardedDataParallel model(net);
  auto optimizer = model.template optimizer<Optimizer>(options);
  Values values;
  for (int step = 0; step < STEPS; ++step) {
    accumulate(model, step, training);
    if (training.clip > 0)
      values.push_back(at::scalar_tensor(model.clip_grad_norm_(training.clip), at::kDouble));
    optimizer.step();
  }
  const Values state = values_of(*net);
  values.insert(values.end(), state.begin(), state.end());
  return values;
}

void expect_equal(const Values& a, const Values& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].equal(b[i])) << what << ": " << i << ", off by " << (a[i] - b[i]).abs().max();
}

template <typename Optimizer, typename Options>
void expect_equal_bits(const char* what, const Options& options) {
  for (const Training& training : {Training{}, Training{.accumulated = 2, .clip = 0.1}}) {
    expect_equal(train_replicas<Optimizer>(options, training), train_shards<Optimizer>(options, training),
                 what);
  }
}

RANKS_TEST(ShardedDataParallel, HasTheBitsOfReplicas, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  expect_equal_bits<optim::SGD>("SGD", optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
  expect_equal_bits<optim::AdamW>("AdamW", optim::AdamWOptions(1e-2));
  expect_equal_bits<optim::LAMB>("LAMB", optim::LAMBOptions(1e-2).max_grad_norm(0.5));
  expect_equal_bits<optim::LARS>("LARS", optim::LARSOptions(0.1).momentum(0.9).weight_decay(1e-3));
}

RANKS_TEST(ShardedDataParallel, OverMessagesToo, Ranks(2, 3, 4), Backends("tcp", "hierarchical")) {
  torch::set_num_threads(1);
  expect_equal_bits<optim::AdamW>("AdamW", optim::AdamWOptions(1e-2));
  expect_equal_bits<optim::LAMB>("LAMB", optim::LAMBOptions(1e-2).max_grad_norm(0.5));
}

RANKS_TEST(ShardedDataParallel, InOtherDtypes, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    const Training training{.type = type};
    const auto options = optim::AdamWOptions(1e-2);
    expect_equal(train_replicas<optim::AdamW>(options, training),
                 train_shards<optim::AdamW>(options, training), toString(type));
  }
}

// libtorch in one process, with the whole batches.
RANKS_TEST(ShardedDataParallel, TrainsAsOneProcess, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  torch::manual_seed(3);
  auto alone = std::make_shared<MixedImpl>(at::kDouble);
  alone->eval();  // statistics of whole batches are not those of shares
  torch::manual_seed(3);
  auto net = std::make_shared<MixedImpl>(at::kDouble);
  net->eval();
  std::vector<at::Tensor> trained;
  for (const auto& parameter : alone->parameters()) {
    const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (parameter.requires_grad() && std::none_of(trained.begin(), trained.end(), same))
      trained.push_back(parameter);
  }
  torch::optim::Adam one(trained, torch::optim::AdamOptions(1e-2));
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<torch::optim::Adam>(torch::optim::AdamOptions(1e-2));
  for (int step = 0; step < STEPS; ++step) {
    one.zero_grad();
    loss_of(alone->forward(input(step * 10, at::kDouble)), target(step * 10)).backward();
    one.step();
    accumulate(model, step, {.type = at::kDouble});
    optimizer.step();
  }
  const auto expected = values_of(*alone);
  const auto values = values_of(*net);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(at::allclose(values[i], expected[i], 1e-9, 1e-12))
        << i << (values[i] - expected[i]).abs().max();
}

RANKS_TEST(ShardedDataParallel, HasParameterGroups, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  auto net = make_net(1, at::kFloat);
  auto other = make_net(1, at::kFloat);
  const auto decays = optim::AdamWOptions(1e-2).weight_decay(0.3);
  const auto plain = optim::AdamWOptions(1e-2).weight_decay(0);
  DistributedDataParallel replicas(other);
  std::vector<at::Tensor> rest;
  for (const at::Tensor& parameter : replicas.parameters()) {
    if (parameter.requires_grad() && !parameter.is_same(other->wide->bias) && !parameter.is_same(other->tied))
      rest.push_back(parameter);
  }
  std::vector<optim::ParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{other->wide->bias, other->tied},
                      std::make_unique<optim::AdamWOptions>(plain));
  groups.emplace_back(rest, std::make_unique<optim::AdamWOptions>(decays));
  optim::AdamW whole(groups, decays);
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::AdamW>({{{net->wide->bias, net->tied}, plain}}, decays);
  ASSERT_EQ(optimizer.param_groups().size(), 2U);
  for (int step = 0; step < STEPS; ++step) {
    whole.zero_grad();
    accumulate(replicas, step, {});
    whole.step();
    accumulate(model, step, {});
    optimizer.step();
  }
  expect_equal(values_of(*other), values_of(*net), "groups");
}

RANKS_TEST(ShardedDataParallel, StepsWhatAnyRankUsed, Ranks(1, 2, 3)) {
  auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
  {
    const at::NoGradGuard no_grad;
    net->weight.fill_(1);
    net->bias.fill_(1);
  }
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(1.0));
  // only the last rank uses the weight, nobody the bias
  if (rank() == size() - 1) {
    (net->weight * 6.0).sum().backward();
  }
  optimizer.step();
  EXPECT_TRUE(at::allclose(net->weight, at::full({2, 3}, 1 - 6.0 / size())));
  EXPECT_TRUE(net->bias.equal(at::ones({2})));
  EXPECT_FALSE(net->weight.grad().defined());
  optimizer.step();  // no rank has a gradient
  EXPECT_TRUE(at::allclose(net->weight, at::full({2, 3}, 1 - 6.0 / size())));
}

RANKS_TEST(ShardedDataParallel, AveragesCanBeLookedAt, Ranks(1, 2, 3, 4)) {
  auto net = std::make_shared<torch::nn::LinearImpl>(300, 400);
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(1.0));
  const at::Tensor of_rank_0 = random_values({400, 300}, 5, at::kFloat);
  (net->weight * (of_rank_0 * static_cast<float>(rank() + 1))).sum().backward();
  const NamedTensors averages = model.average_gradients();
  ASSERT_EQ(averages.size(), 2U);
  EXPECT_EQ(averages[0].first, "weight");
  EXPECT_TRUE(at::allclose(averages[0].second, of_rank_0 * ((size() + 1) / 2.0)));
  EXPECT_FALSE(averages[1].second.defined());
  EXPECT_FALSE(net->weight.grad().defined());
  const at::Tensor before = net->weight.detach().clone();
  optimizer.step();
  EXPECT_TRUE(at::allclose(net->weight, before - averages[0].second));
}

// How many ranks have one copy of the parameters. "hierarchical" has two machines, of three ranks unequal
// ones.
int sharers(const ProcessGroup& group) {
  if (group.backend_name() == "hierarchical") return group.size() == 4 ? 2 : 1;
  return group.backend_name() == "shm" || group.backend_name() == "self" ? group.size() : 1;
}

// What a rank accounts for, beside the formulas of docs/zero.md; the rest is alignment and the ranks' marks.
RANKS_TEST(ShardedDataParallel, MemoryIsThatOfTheFormulas, Ranks(1, 2, 3, 4),
           Backends("shm", "tcp", "hierarchical")) {
  auto net = std::make_shared<torch::nn::LinearImpl>(1000, 500);
  const double bytes = 4.0 * (1000 * 500 + 500);
  ShardedDataParallel model(net);
  EXPECT_EQ(model.memory().is_shared, sharers(world()) > 1);
  EXPECT_NEAR(model.memory().parameters, bytes / sharers(world()), 0.01 * bytes);
  EXPECT_NEAR(model.memory().gradients, bytes, 0.01 * bytes);
  auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-3));
  model.forward(at::ones({1, 1000})).sum().backward();
  optimizer.step();
  double state = 0;
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    if (name.starts_with("state.") && tensor.dim() > 0) state += static_cast<double>(tensor.nbytes());
  }
  EXPECT_NEAR(state, 2 * bytes / size(), 8.0 * optim::CHUNK_ELEMENTS);  // a cut is off by less than a chunk
}

void spin_at_random(std::mt19937& random) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 300);
  while (std::chrono::steady_clock::now() < end) {
  }
}

// The weight after many steps, in which each rank is late at random places if `is_late`.
at::Tensor train_late(bool is_late) {
  const char* const asked = std::getenv("RANKS_TEST_LATE_STEPS");  // by hand: as many as one likes
  const int steps = asked == nullptr ? 300 : std::atoi(asked);
  torch::manual_seed(5);
  auto net = std::make_shared<torch::nn::LinearImpl>(300, 300);
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
  std::mt19937 random(static_cast<unsigned>(get_rank()));
  const auto wait = [&] {
    if (is_late && random() % 2 == 0) spin_at_random(random);
  };
  for (int step = 0; step < steps; ++step) {
    const at::Tensor x =
        random_values({2, 300}, static_cast<std::uint64_t>(4 * step + get_rank()), at::kFloat);
    wait();
    const at::Tensor loss = model.forward(x).pow(2).sum();
    wait();
    loss.backward();
    wait();
    if (step % 3 == 0) model.clip_grad_norm_(1.0);
    wait();
    optimizer.step();
  }
  return net->weight.detach().clone();
}

RANKS_TEST(ShardedDataParallel, LateRanksDoNotShowInTheBits, Ranks(2, 3, 4),
           Backends("shm", "hierarchical")) {
  torch::set_num_threads(1);
  const at::Tensor expected = train_late(/*is_late=*/false);
  EXPECT_TRUE(train_late(/*is_late=*/true).equal(expected));
}

// One copy for all ranks, or for each machine: rank 0's writes are seen by all.
RANKS_TEST(ShardedDataParallel, WritesAreMadeOnce, Ranks(1, 2, 3, 4), Backends("shm", "hierarchical")) {
  auto net = make_net(rank(), at::kFloat);
  ShardedDataParallel model(net);
  const at::Tensor before = net->tied.detach().clone();
  model.write_parameters([&] { net->tied.mul_(2); });
  EXPECT_TRUE(net->tied.equal(before * 2));
  model.forward(share(input(0, at::kFloat)));
  torch::OrderedDict<std::string, at::Tensor> state("tensor");
  for (const auto& item : model.state_dict()) state.insert(item.key(), at::full_like(item.value(), 0.25));
  model.load_state_dict(state);
  for (const auto& item : model.state_dict())
    EXPECT_TRUE(item.value().equal(state[item.key()])) << item.key();
  model.forward(share(input(0, at::kFloat)));
}

}  // namespace
}  // namespace sharded_data_parallel_test
}  // namespace lockstep
