// What libtorch programs do around a model keeps working under DDP: several optimisers, clipping, two models
// against each other, checkpointing, odd dtypes. The expected values are those of one process on the whole
// batch.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

constexpr int BATCH = 12;
constexpr auto DOUBLE = at::kDouble;

torch::nn::Sequential make_mlp(int seed, int inputs, int outputs) {
  torch::manual_seed(seed);
  torch::nn::Sequential net(torch::nn::Linear(inputs, 6), torch::nn::Tanh(), torch::nn::Linear(6, outputs));
  net->to(DOUBLE);
  return net;
}

torch::Tensor share(const torch::Tensor& batch, const ProcessGroup& group) {
  const int part = BATCH / group.size();
  return batch.narrow(0, group.rank() * part, part);
}

void expect_close(const torch::nn::Sequential& net, const torch::nn::Sequential& expected,
                  const std::string& what) {
  for (const auto& item : expected->named_parameters()) {
    const double distance = (net->named_parameters()[item.key()] - item.value()).abs().max().item<double>();
    EXPECT_LE(distance, 1e-12 * item.value().abs().max().item<double>()) << what << " " << item.key();
  }
}

using Optimizers = std::vector<std::unique_ptr<torch::optim::Optimizer>>;
using MakeOptimizers = std::function<Optimizers(const std::vector<torch::Tensor>&)>;

template <typename Optimizer, typename... Options> MakeOptimizers one(Options... options) {
  return [=](const std::vector<torch::Tensor>& parameters) {
    Optimizers made;
    made.push_back(std::make_unique<Optimizer>(parameters, options...));
    return made;
  };
}

Optimizers adam_and_sgd(const std::vector<torch::Tensor>& parameters) {
  Optimizers made;
  const auto middle = parameters.begin() + 2;
  made.push_back(
      std::make_unique<torch::optim::Adam>(std::vector<torch::Tensor>(parameters.begin(), middle)));
  made.push_back(
      std::make_unique<torch::optim::SGD>(std::vector<torch::Tensor>(middle, parameters.end()), 0.1));
  return made;
}

template <typename Forward>
void train(const torch::nn::Sequential& net, Forward forward, const MakeOptimizers& make,
           const torch::Tensor& x, const torch::Tensor& y) {
  const Optimizers optimizers = make(net->parameters());
  for (int step = 0; step < 5; ++step) {
    for (const auto& optimizer : optimizers) optimizer->zero_grad();
    torch::mse_loss(forward(x), y).backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 0.1);
    for (const auto& optimizer : optimizers) optimizer->step();
  }
}

RANKS_TEST(DdpHabits, EveryOptimizerAndClippingSeeTheAveragedGradients, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  const std::vector<std::pair<std::string, MakeOptimizers>> all = {
      {"SGD", one<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01))},
      {"Adam", one<torch::optim::Adam>(torch::optim::AdamOptions(0.01))},
      {"AdamW", one<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01))},
      {"RMSprop", one<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01))},
      {"Adagrad", one<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01))},
      {"Adam and SGD", adam_and_sgd}};
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({BATCH, 4}, DOUBLE);
  const torch::Tensor y = torch::randn({BATCH, 3}, DOUBLE);
  for (const auto& [name, make] : all) {
    const auto alone = make_mlp(/*seed=*/0, 4, 3);
    train(
        alone, [&](const torch::Tensor& in) { return torch::nn::Sequential(alone)->forward(in); }, make, x,
        y);
    const auto net = make_mlp(/*seed=*/rank(), 4, 3);
    DistributedDataParallel ddp(net, {.process_group = world()});
    train(
        net, [&](const torch::Tensor& in) { return ddp->forward(in); }, make, share(x, world()),
        share(y, world()));
    expect_close(net, alone, name);
  }
}

RANKS_TEST(DdpHabits, ClosuresThatRunBackwardSeveralTimesWork, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({BATCH, 4}, DOUBLE);
  const torch::Tensor y = torch::randn({BATCH, 3}, DOUBLE);
  const auto net = make_mlp(/*seed=*/rank(), 4, 3);
  DistributedDataParallel ddp(net, {.process_group = world()});
  torch::optim::LBFGS optimizer(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(4));
  const torch::Tensor own_x = share(x, world());
  const torch::Tensor own_y = share(y, world());
  const auto closure = [&] {
    optimizer.zero_grad();
    torch::Tensor loss = torch::mse_loss(ddp->forward(own_x), own_y);
    loss.backward();
    torch::Tensor mean = loss.detach().clone();  // the line search must see one loss on all ranks
    all_reduce(mean, ReduceOp::AVG, world());
    return mean;
  };
  const double before = closure().item<double>();
  for (int step = 0; step < 3; ++step) optimizer.step(closure);
  EXPECT_LT(closure().item<double>(), before);
  for (const auto& item : net->named_parameters()) {
    std::vector<torch::Tensor> all(size());
    for (auto& each : all) each = torch::empty_like(item.value());
    all_gather(all, item.value().detach(), world());
    for (const auto& each : all) EXPECT_TRUE(torch::equal(each, item.value()));
  }
}

// Two models against each other: the discriminator's step runs two backward passes, the generator's step
// leaves gradients in the discriminator that are thrown away.
template <typename Generate, typename Judge>
void train_adversaries(const torch::nn::Sequential& generator, const torch::nn::Sequential& discriminator,
                       Generate generate, Judge judge, const torch::Tensor& real,
                       const torch::Tensor& noise) {
  torch::optim::SGD generator_steps(generator->parameters(), 0.1);
  torch::optim::SGD discriminator_steps(discriminator->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    discriminator_steps.zero_grad();
    torch::softplus(-judge(real)).mean().backward();
    torch::softplus(judge(generate(noise).detach())).mean().backward();
    discriminator_steps.step();
    generator_steps.zero_grad();
    torch::softplus(-judge(generate(noise))).mean().backward();
    generator_steps.step();
  }
}

RANKS_TEST(DdpHabits, AdversariesTrainAsInOneProcess, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  torch::manual_seed(6);
  const torch::Tensor real = torch::randn({BATCH, 4}, DOUBLE);
  const torch::Tensor noise = torch::randn({BATCH, 2}, DOUBLE);
  auto alone_g = make_mlp(0, 2, 4);
  auto alone_d = make_mlp(1, 4, 1);
  train_adversaries(
      alone_g, alone_d, [&](const torch::Tensor& x) { return alone_g->forward(x); },
      [&](const torch::Tensor& x) { return alone_d->forward(x); }, real, noise);
  auto net_g = make_mlp(10 + 2 * rank(), 2, 4);
  auto net_d = make_mlp(11 + 2 * rank(), 4, 1);
  if (rank() == 0) {
    net_g = make_mlp(0, 2, 4);
    net_d = make_mlp(1, 4, 1);
  }
  DistributedDataParallel ddp_g(net_g, {.process_group = world()});
  DistributedDataParallel ddp_d(net_d, {.process_group = world()});
  train_adversaries(
      net_g, net_d, [&](const torch::Tensor& x) { return ddp_g->forward(x); },
      [&](const torch::Tensor& x) { return ddp_d->forward(x); }, share(real, world()), share(noise, world()));
  expect_close(net_g, alone_g, "generator");
  expect_close(net_d, alone_d, "discriminator");
}

// Forward runs twice before one backward, which brings each parameter the sum of both in one gradient.
RANKS_TEST(DdpHabits, AModelCalledTwiceTrainsAsInOneProcess, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  torch::manual_seed(7);
  const torch::Tensor x = torch::randn({BATCH, 4}, DOUBLE);
  const torch::Tensor y = torch::randn({BATCH, 4}, DOUBLE);
  const auto make = one<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  auto alone = make_mlp(/*seed=*/0, 4, 4);
  train(
      alone, [&](const torch::Tensor& in) { return alone->forward(in) - alone->forward(in.flip(1)); }, make,
      x, y);
  const auto net = make_mlp(/*seed=*/rank(), 4, 4);
  DistributedDataParallel ddp(net, {.process_group = world(), .bucket_cap_mb = 1e-6});
  train(
      net, [&](const torch::Tensor& in) { return ddp->forward(in) - ddp->forward(in.flip(1)); }, make,
      share(x, world()), share(y, world()));
  expect_close(net, alone, "called twice");
  EXPECT_EQ(ddp.stats().reductions, 5u);
}

RANKS_TEST(DdpHabits, ChannelsLastParametersKeepTheirStridesAndTrainAsInOneProcess, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  const auto make_net = [](int seed) {
    torch::manual_seed(seed);
    torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::Tanh(), torch::nn::Conv2d(4, 3, 3));
    net->to(DOUBLE);
    for (auto& w : net->parameters()) {
      if (w.dim() == 4) w.set_data(w.contiguous(at::MemoryFormat::ChannelsLast));
    }
    return net;
  };
  torch::manual_seed(8);
  const torch::Tensor x = torch::randn({BATCH, 3, 7, 7}, DOUBLE).contiguous(at::MemoryFormat::ChannelsLast);
  const torch::Tensor y = torch::randn({BATCH, 3, 3, 3}, DOUBLE);
  const auto make = one<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto alone = make_net(/*seed=*/0);
  train(
      alone, [&](const torch::Tensor& in) { return torch::nn::Sequential(alone)->forward(in); }, make, x, y);
  const auto net = make_net(/*seed=*/rank());
  DistributedDataParallel ddp(net, {.process_group = world(), .bucket_cap_mb = 1e-6});
  train(
      net, [&](const torch::Tensor& in) { return ddp->forward(in); }, make, share(x, world()),
      share(y, world()));
  expect_close(net, alone, "channels last");
  for (const auto& w : net->parameters()) EXPECT_EQ(w.grad().strides(), w.strides());
}

RANKS_TEST(DdpHabits, EveryFloatingTypeIsAveragedInBucketsOfItsOwn, Ranks(1, 2, 3, 4)) {
  NamedTensors named;
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble}) {
    named.emplace_back(c10::toString(type), torch::ones({3}, torch::TensorOptions(type).requires_grad(true)));
  }
  DistributedDataParallel ddp(named, {}, {.process_group = world()});
  EXPECT_EQ(ddp.stats().buckets, named.size());
  const auto loss = ddp.forward([&] {
    torch::Tensor sum = torch::zeros({}, DOUBLE);
    for (const auto& [name, w] : named) {
      sum = sum + (torch::real(w * (2.0 * rank())).to(DOUBLE)).sum();
    }
    return sum;
  });
  loss.backward();
  for (const auto& [name, w] : named) {  // the mean of 0, 2, ..., 2 (size - 1)
    EXPECT_TRUE(torch::equal(w.grad(), torch::full_like(w, size() - 1))) << name;
  }
}

RANKS_TEST(DdpHabits, GroupsOfThreadsTrainToo, Ranks(2, 3), Backends("thread")) {
  const torch::Tensor w = torch::full({4}, 1.0 + rank(), torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"w", w}}, {}, {.process_group = world()});
  for (int step = 1; step <= 3; ++step) {
    ddp.forward([&] { return (w * rank()).sum(); }).backward();
    EXPECT_FLOAT_EQ(w.grad()[0].item<float>(), step * (size() - 1) / 2.0F);
  }
}

}  // namespace
}  // namespace lockstep
