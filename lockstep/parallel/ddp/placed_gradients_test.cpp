// Gradients that autograd makes in the buckets: that it happens, and what happens when something else is made
// there. The group multiplies every bucket by ten, so what was averaged differs from what a rank computed.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "lockstep/tensor/caching_allocator.h"
#include "testing/fake_ddp.h"

namespace lockstep {
namespace {

using testing::fake_group;
using testing::FakeBackend;

constexpr int WIDTH = 256;
constexpr std::uint64_t WEIGHT_BYTES = WIDTH * WIDTH * sizeof(float);
constexpr std::uint64_t BIAS_BYTES = WIDTH * sizeof(float);
constexpr int LAYERS = 3;
constexpr double FACTOR = 10;

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int i = 0; i < LAYERS; ++i) net->push_back(torch::nn::Linear(WIDTH, WIDTH));
  return net;
}

std::shared_ptr<FakeBackend> group_that_multiplies() {
  auto backend = fake_group();
  backend->on_start = [](const Request& request) {
    if (request.verb != Verb::ALL_REDUCE) return;
    auto* values = static_cast<float*>(request.output);
    for (std::size_t i = 0; i < request.count; ++i) values[i] *= FACTOR;
  };
  return backend;
}

struct PlacedGradients : ::testing::Test {
  PlacedGradients() {
    install_caching_allocator();
    plain->zero_grad();
    plain->forward(x).pow(2).mean().backward();
  }

  void expect_averaged(const std::string& what) {
    for (const auto& item : net->named_parameters()) {
      const torch::Tensor expected = plain->named_parameters()[item.key()].grad() * FACTOR;
      EXPECT_TRUE(torch::allclose(item.value().grad(), expected, 1e-5, 1e-9)) << what << " " << item.key();
      EXPECT_FALSE(item.value().grad().is_view());
    }
  }

  // The activations' gradients have the size of a weight's.
  torch::Tensor x = torch::randn({WIDTH, WIDTH});
  torch::nn::Sequential plain = make_net();
  torch::nn::Sequential net = make_net();
  DistributedDataParallel<torch::nn::SequentialImpl> ddp{
      net, {.process_group = ProcessGroup(group_that_multiplies()), .bucket_cap_mb = 25}};
};

// The first backward is watched. The last layer's gradients are there before DDP hears of a backward; biases
// are too small to be worth an offer.
TEST_F(PlacedGradients, LargeOnesAreCopiedOnceAmongOthersOfTheirSize) {
  for (std::uint64_t step = 0; step < 4; ++step) {
    net->zero_grad();
    ddp.forward(x).pow(2).mean().backward();
    expect_averaged("step " + std::to_string(step));
    EXPECT_EQ(ddp.stats().bytes_copied, (LAYERS + step) * WEIGHT_BYTES + (step + 1) * LAYERS * BIAS_BYTES);
  }
}

// With few rows no activation has the size of a weight, so the second backward is not like the one that was
// watched.
TEST_F(PlacedGradients, BackwardsThatDifferAreOnlyCopied) {
  for (int step = 0; step < 12; ++step) {
    const torch::Tensor rows = step % 2 == 0 ? x : x.narrow(0, 0, 8);
    plain->zero_grad();
    net->zero_grad();
    plain->forward(rows).pow(2).mean().backward();
    ddp.forward(rows).pow(2).mean().backward();
    expect_averaged("step " + std::to_string(step));
  }
  const auto before = ddp.stats().bytes_copied;
  net->zero_grad();
  ddp.forward(x).pow(2).mean().backward();
  EXPECT_EQ(ddp.stats().bytes_copied - before, LAYERS * (WEIGHT_BYTES + BIAS_BYTES)) << "still offered";
}

TEST_F(PlacedGradients, GradientsThatAreKeptAreAddedTo) {
  ddp.forward(x).pow(2).mean().backward();
  expect_averaged("first");
  net->zero_grad(/*set_to_none=*/false);
  ddp.forward(x).pow(2).mean().backward();
  expect_averaged("second");
}

TEST_F(PlacedGradients, ActivationsOfTheSameSizeStayWhatTheyAre) {
  for (int step = 0; step < 4; ++step) {
    std::vector<torch::Tensor> kept;  // of all activations, for longer than the backward
    std::vector<torch::Tensor> expected;
    for (auto* from : {&plain, &net}) {
      (*from)->zero_grad();
      torch::Tensor h = x;
      auto& gradients = from == &plain ? expected : kept;
      ddp.forward(x);  // opens the pass; what follows is its graph
      for (const auto& layer : (*from)->children()) {
        h = layer->as<torch::nn::Linear>()->forward(h);
        h.register_hook([&gradients](const torch::Tensor& g) { gradients.push_back(g); });
      }
      h.pow(2).mean().backward();
    }
    expect_averaged("step " + std::to_string(step));
    ASSERT_EQ(kept.size(), expected.size());
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::allclose(kept[i], expected[i])) << i;
  }
}

TEST_F(PlacedGradients, WhoKeepsALocalGradientKeepsIt) {
  const auto parameters = net->named_parameters();
  std::vector<std::pair<std::string, torch::Tensor>> kept;
  for (const auto& item : parameters) {
    item.value().register_hook(
        [&kept, name = item.key()](const torch::Tensor& g) { kept.emplace_back(name, g); });
  }
  for (int step = 0; step < 3; ++step) {
    kept.clear();
    net->zero_grad();
    ddp.forward(x).pow(2).mean().backward();
    expect_averaged("step " + std::to_string(step));
    EXPECT_EQ(kept.size(), parameters.size());
    for (const auto& [name, local] : kept) {
      EXPECT_TRUE(torch::allclose(local, plain->named_parameters()[name].grad(), 1e-5, 1e-9)) << name;
    }
  }
}

}  // namespace
}  // namespace lockstep
