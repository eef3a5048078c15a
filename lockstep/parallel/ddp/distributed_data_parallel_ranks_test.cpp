// Ranks that train one model: what they compute equals what one process computes with plain libtorch on the
// whole batch.
#include "lockstep/parallel/ddp/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>

#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

constexpr int CNN_BATCH = 12;  // divisible by 1, 2, 3 and 4

struct SmallCnnImpl : torch::nn::Module {
  SmallCnnImpl() {
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 4, 3));
    conv2 = register_module("conv2", torch::nn::Conv2d(4, 6, 3));
    fc = register_module("fc", torch::nn::Linear(6 * 4 * 4, 5));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv2(torch::relu(conv1(x)))), 2);
    return fc(x.flatten(1));
  }
  static torch::Tensor make_input(at::ScalarType type) { return torch::randn({CNN_BATCH, 1, 12, 12}, type); }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear fc{nullptr};
};

// The first layer is frozen; the second and the third share one weight.
struct TiedMlpImpl : torch::nn::Module {
  TiedMlpImpl() {
    in = register_module("in", torch::nn::Linear(7, 8));
    for (auto& parameter : in->parameters()) parameter.requires_grad_(false);
    tied = register_parameter("tied", torch::empty({8, 8}));
    same = register_parameter("same", tied);
    bias = register_parameter("bias", torch::empty({8}));
    out = register_module("out", torch::nn::Linear(8, 5));
    const torch::NoGradGuard no_grad;
    tied.normal_(0, 0.3);
    bias.normal_(0, 0.3);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor h = torch::tanh(in(x));
    h = torch::tanh(h.mm(named_parameters(false)["tied"]) + bias);
    h = torch::tanh(h.mm(named_parameters(false)["same"].t()));
    return out(h);
  }
  static torch::Tensor make_input(at::ScalarType type) { return torch::randn({CNN_BATCH, 7}, type); }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::Tensor tied, same, bias;
};

template <typename Net> std::shared_ptr<Net> make_net(int seed, at::ScalarType type) {
  torch::manual_seed(seed);
  auto net = std::make_shared<Net>();
  net->to(type);
  return net;
}

struct Batches {
  std::vector<torch::Tensor> inputs, targets;
};

template <typename Net> Batches make_batches(int steps, at::ScalarType type) {
  torch::manual_seed(99);
  Batches batches;
  for (int step = 0; step < steps; ++step) {
    batches.inputs.push_back(Net::make_input(type));
    batches.targets.push_back(torch::randint(5, {CNN_BATCH}, torch::kLong));
  }
  return batches;
}

torch::Tensor share(const torch::Tensor& batch, int rank, int size) {
  return batch.narrow(0, rank * (CNN_BATCH / size), CNN_BATCH / size);
}

// libtorch's Module::parameters() lists a shared parameter as often as it is registered.
torch::optim::SGD momentum_sgd(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> once;
  for (const torch::Tensor& parameter : parameters) {
    const auto same = [&](const torch::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(once.begin(), once.end(), same)) once.push_back(parameter);
  }
  return torch::optim::SGD(once, torch::optim::SGDOptions(0.05).momentum(0.9));
}

// What one process without DDP makes of the whole batches.
template <typename Net> std::shared_ptr<Net> train_alone(const Batches& batches, at::ScalarType type) {
  auto net = make_net<Net>(/*seed=*/0, type);
  auto optimizer = momentum_sgd(net->parameters());
  for (std::size_t step = 0; step < batches.inputs.size(); ++step) {
    optimizer.zero_grad();
    torch::cross_entropy_loss(net->forward(batches.inputs[step]), batches.targets[step]).backward();
    optimizer.step();
  }
  return net;
}

template <typename Net>
void expect_same_training(int rank, const ProcessGroup& group, at::ScalarType type, double bound) {
  constexpr int STEPS = 50;
  torch::set_num_threads(1);
  const Batches batches = make_batches<Net>(STEPS, type);
  auto net = make_net<Net>(/*seed=*/rank, type);  // another model on each rank, until it is wrapped
  DistributedDataParallel ddp(net,
                              {.process_group = group, .bucket_cap_mb = 0.001, .first_bucket_mb = 0.0001});
  const auto buckets_at_first = ddp.stats().buckets;  // until the order of gradients is known
  auto optimizer = momentum_sgd(ddp.parameters());
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    const auto output = ddp->forward(share(batches.inputs[step], rank, group.size()));
    torch::cross_entropy_loss(output, share(batches.targets[step], rank, group.size())).backward();
    optimizer.step();
  }
  EXPECT_GT(ddp.stats().buckets, 1u);
  EXPECT_EQ(ddp.stats().buckets_started, buckets_at_first + (STEPS - 1) * ddp.stats().buckets);
  const auto alone = train_alone<Net>(batches, type);
  for (const auto& item : alone->named_parameters()) {
    const torch::Tensor& own = net->named_parameters()[item.key()];
    const double distance = (own - item.value()).abs().max().template item<double>();
    EXPECT_LE(distance, bound * item.value().abs().max().template item<double>()) << item.key();
  }
}

RANKS_TEST(DistributedTraining, OfACnnInFloat64EqualsOneProcess, Ranks(1, 2, 3, 4)) {
  expect_same_training<SmallCnnImpl>(rank(), world(), at::kDouble, 1e-12);
}
RANKS_TEST(DistributedTraining, OfACnnInFloat32EqualsOneProcess, Ranks(1, 2, 3, 4)) {
  expect_same_training<SmallCnnImpl>(rank(), world(), at::kFloat, 1e-4);
}
RANKS_TEST(DistributedTraining, OfAnMlpWithFrozenAndSharedParametersInFloat64EqualsOneProcess,
           Ranks(1, 2, 3, 4)) {
  expect_same_training<TiedMlpImpl>(rank(), world(), at::kDouble, 1e-12);
}
RANKS_TEST(DistributedTraining, OfAnMlpWithFrozenAndSharedParametersInFloat32EqualsOneProcess,
           Ranks(1, 2, 3, 4)) {
  expect_same_training<TiedMlpImpl>(rank(), world(), at::kFloat, 1e-4);
}

std::vector<torch::Tensor> of_all_ranks(const torch::Tensor& mine, const ProcessGroup& group) {
  std::vector<torch::Tensor> all;
  for (int r = 0; r < group.size(); ++r) all.push_back(torch::empty_like(mine));
  all_gather(all, mine.detach(), group);
  return all;
}

void expect_equal_on_all_ranks(const torch::Tensor& mine, const ProcessGroup& group,
                               const std::string& what) {
  for (const torch::Tensor& other : of_all_ranks(mine, group)) EXPECT_TRUE(torch::equal(other, mine)) << what;
}

void expect_different_on_all_ranks(const torch::Tensor& mine, const ProcessGroup& group,
                                   const std::string& what) {
  const auto all = of_all_ranks(mine, group);
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) EXPECT_FALSE(torch::equal(all[a], all[b])) << what;
  }
}

// "Which data are equal on all processes, and which are not": the table at the end of the first article this
// project was started with (issue 3), read from the real tensors.
//
//                       first iteration       later iterations
//   initial weights     differ                -
//   training data       differ                differ
//   forward             differs               differs
//   loss                differs               differs
//   gradients           equal (the article: differ)   equal
//   updated weights     equal                 equal
//
// The article says that the gradients of the first iteration differ, made so that the weights become equal.
// With DDP they are equal: construction already gives every rank rank 0's weights, and backward leaves the
// average of all ranks' gradients.
RANKS_TEST(DistributedTraining, LooksAsTheTableOfTheArticleSays, Ranks(2, 3, 4)) {
  auto net = make_net<SmallCnnImpl>(/*seed=*/100 + rank(), at::kFloat);
  for (const auto& item : net->named_parameters())
    expect_different_on_all_ranks(item.value(), world(), item.key());
  DistributedDataParallel ddp(net, {.process_group = world()});
  for (const auto& item : net->named_parameters())
    expect_equal_on_all_ranks(item.value(), world(), item.key());

  auto optimizer = momentum_sgd(net->parameters());
  torch::manual_seed(200 + rank());
  for (int iteration = 1; iteration <= 3; ++iteration) {
    const std::string when = " in iteration " + std::to_string(iteration);
    const torch::Tensor data = SmallCnnImpl::make_input(at::kFloat);
    const torch::Tensor target = torch::randint(5, {CNN_BATCH}, torch::kLong);
    expect_different_on_all_ranks(data, world(), "training data" + when);
    optimizer.zero_grad();
    const torch::Tensor output = ddp->forward(data);
    expect_different_on_all_ranks(output, world(), "forward" + when);
    const torch::Tensor loss = torch::cross_entropy_loss(output, target);
    expect_different_on_all_ranks(loss, world(), "loss" + when);
    loss.backward();
    for (const auto& item : net->named_parameters()) {
      expect_equal_on_all_ranks(item.value().grad(), world(), "gradient of " + item.key() + when);
      EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << item.key();
    }
    optimizer.step();
    for (const auto& item : net->named_parameters()) {
      expect_equal_on_all_ranks(item.value(), world(), item.key() + " after" + when);
    }
  }
}

// Rank r adds (r + 1) * x to the gradient of w in each backward.
struct Line {
  torch::Tensor w = torch::zeros({3}, torch::requires_grad());
  DistributedDataParallel<void> ddp;
  explicit Line(const ProcessGroup& group, DistributedDataParallelOptions options = {})
      : ddp(NamedTensors{{"w", w}}, {}, [&] {
          options.process_group = group;
          return options;
        }()) {}
  void backward(double slope) {
    ddp.forward([&] { return (w * slope).sum(); }).backward();
  }
  double grad() const { return w.grad()[1].item<double>(); }
};

double mean_of_ranks(int size) { return (size + 1) / 2.0; }  // of 1, 2, ..., size

RANKS_TEST(DistributedTraining, NoSyncAddsUpLocallyUntilTheNextBackward, Ranks(1, 2, 3, 4)) {
  Line line(world());
  for (int step = 0; step < 2; ++step) {
    line.w.mutable_grad().reset();
    {
      auto guard = line.ddp.no_sync();
      line.backward(10 * (rank() + 1));
      {
        auto nested = line.ddp.no_sync();
        line.backward(20 * (rank() + 1));
      }
      line.backward(30 * (rank() + 1));
      EXPECT_EQ(line.grad(), 60 * (rank() + 1));
    }
    line.backward(40 * (rank() + 1));
    EXPECT_FLOAT_EQ(line.grad(), 100 * mean_of_ranks(size()));
  }
  EXPECT_EQ(line.ddp.stats().reductions, 2u);
}

RANKS_TEST(DistributedTraining, RanksMayTakeDifferentNumbersOfLocalPasses, Ranks(2, 3)) {
  Line line(world());
  {
    auto guard = line.ddp.no_sync();
    for (int pass = 0; pass < rank(); ++pass) line.backward(1);
  }
  line.backward(1);
  EXPECT_FLOAT_EQ(line.grad(), mean_of_ranks(size()));
}

RANKS_TEST(DistributedTraining, DeclaredPassesAverageOnce, Ranks(1, 2, 3)) {
  Line line(world(), {.backward_passes_per_step = 3});
  for (std::uint64_t step = 1; step <= 2; ++step) {
    line.w.mutable_grad().reset();
    for (int pass = 0; pass < 3; ++pass) line.backward(rank() + 1);
    EXPECT_FLOAT_EQ(line.grad(), 3 * mean_of_ranks(size()));
    EXPECT_EQ(line.ddp.stats().reductions, step);
  }
}

RANKS_TEST(DistributedTraining, SeveralBackwardPassesOfOneForwardAddUp, Ranks(1, 2, 3)) {
  Line line(world());
  const auto loss = line.ddp.forward([&] { return (line.w * (rank() + 1)).sum(); });
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  EXPECT_FLOAT_EQ(line.grad(), 2 * mean_of_ranks(size()));
}

RANKS_TEST(DistributedTraining, BuffersAreRankZerosAtEachForwardInTrainingMode, Ranks(1, 2, 3)) {
  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
  const torch::Tensor mean = torch::full({2}, 10.0 + rank());
  const torch::Tensor steps = torch::full({}, 20 + rank(), torch::kLong);
  DistributedDataParallel ddp(NamedTensors{{"w", w}}, NamedTensors{{"mean", mean}, {"steps", steps}},
                              {.process_group = world()});
  EXPECT_EQ(mean[1].item<float>(), 10);
  EXPECT_EQ(steps.item<int>(), 20);
  const auto forward = [&] { return ddp.forward([&] { return mean[1].item<float>() + steps.item<int>(); }); };
  mean.fill_(100 + rank());
  EXPECT_EQ(forward(), 120);
  ddp.eval();
  mean.fill_(200 + rank());
  EXPECT_EQ(forward(), 220 + rank());
  ddp.train();
  {
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(forward(), 220 + rank());
  }
  EXPECT_EQ(forward(), 220);
}

RANKS_TEST(DistributedTraining, RankZeroMayEvaluateAlone, Ranks(2, 3)) {
  auto net = make_net<SmallCnnImpl>(rank(), at::kFloat);
  DistributedDataParallel ddp(net, {.process_group = world(), .find_unused_parameters = true});
  ddp.eval();
  if (rank() == 0) {
    for (int i = 0; i < 10; ++i) ddp->forward(SmallCnnImpl::make_input(at::kFloat));
  }
  ddp.train();
  ddp->forward(SmallCnnImpl::make_input(at::kFloat)).sum().backward();
  expect_equal_on_all_ranks(net->fc->weight.grad(), world(), "gradient");
}

RANKS_TEST(DistributedTraining, UnusedParametersContributeZerosAndNoRanksUseLeavesThemAlone,
           Ranks(1, 2, 3, 4)) {
  std::vector<torch::Tensor> w;
  NamedTensors named;
  for (int i = 0; i < 6; ++i) {
    w.push_back(torch::ones({1}, torch::requires_grad()));
    named.emplace_back("w" + std::to_string(i), w.back());
  }
  DistributedDataParallel ddp(
      named, {}, {.process_group = world(), .bucket_cap_mb = 1e-6, .find_unused_parameters = true});
  w[4].mutable_grad() = torch::full({1}, 42.0);
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 4; ++i) w[i].mutable_grad().reset();
    auto loss = ddp.forward([&] { return w[rank()] * 3; });  // rank r uses w[r]; none uses w[4] and w[5]
    loss.backward();
    for (int i = 0; i < size(); ++i) EXPECT_FLOAT_EQ(w[i].grad().item<float>(), 3.0F / size());
    for (int i = size(); i < 4; ++i) EXPECT_FALSE(w[i].grad().defined());
    EXPECT_EQ(w[4].grad().item<float>(), 42);
    EXPECT_FALSE(w[5].grad().defined());
  }
}

RANKS_TEST(DistributedTraining, ARankWhoseOutputsReachNoParameterTakesPart, Ranks(2, 3)) {
  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"w", w}}, {},
                              {.process_group = world(), .find_unused_parameters = true});
  auto loss = ddp.forward([&] { return rank() == 1 ? torch::zeros({1}) : w * 6; });
  if (loss.requires_grad()) loss.backward();
  EXPECT_FLOAT_EQ(w.grad().item<float>(), 6.0F * (size() - 1) / size());
}

}  // namespace
}  // namespace lockstep
