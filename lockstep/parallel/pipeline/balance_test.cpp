#include "lockstep/parallel/pipeline/balance.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/random_state.h"

namespace lockstep::balance_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The largest part of the best cut, by trying all cuts.
double best_by_trying(const std::vector<double>& costs, std::size_t from, int parts) {
  const auto sum = [&](std::size_t to) {
    return std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(from),
                           costs.begin() + static_cast<std::ptrdiff_t>(to), 0.0);
  };
  if (parts == 1) return sum(costs.size());
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t to = from + 1; to + static_cast<std::size_t>(parts) - 1 <= costs.size(); ++to)
    best = std::min(best, std::max(sum(to), best_by_trying(costs, to, parts - 1)));
  return best;
}

double largest_part(const std::vector<double>& costs, const std::vector<std::int64_t>& balance) {
  double largest = 0;
  auto next = costs.begin();
  for (const std::int64_t size : balance) {
    largest = std::max(largest, std::accumulate(next, next + size, 0.0));
    next += size;
  }
  EXPECT_EQ(next, costs.end());
  return largest;
}

TEST(BalanceCosts, CutsWhereTheLargestPartIsSmallest) {
  EXPECT_THAT(balance_costs({1, 1, 1, 1}, 2), ElementsAre(2, 2));
  EXPECT_THAT(balance_costs({1, 2, 3, 4, 5, 6}, 2), ElementsAre(4, 2));  // torchgpipe's example
  EXPECT_THAT(balance_costs({9, 1, 1, 1}, 2), ElementsAre(1, 3));
  EXPECT_THAT(balance_costs({5}, 1), ElementsAre(1));
  EXPECT_THAT(balance_costs({0, 0, 0}, 3), ElementsAre(1, 1, 1));
  std::uint64_t seed = 1;
  for (std::size_t n = 1; n <= 8; ++n)
    for (int parts = 1; parts <= static_cast<int>(n); ++parts)
      for (int trial = 0; trial < 5; ++trial) {
        std::vector<double> costs(n);
        for (double& cost : costs)
          cost = static_cast<double>((seed = seed * 6364136223846793005ULL + 1) >> 60U);
        const auto balance = balance_costs(costs, parts);
        ASSERT_EQ(balance.size(), static_cast<std::size_t>(parts));
        ASSERT_GT(*std::min_element(balance.begin(), balance.end()), 0);
        ASSERT_EQ(largest_part(costs, balance), best_by_trying(costs, 0, parts));
      }
}

TEST(BalanceCosts, RefusesWhatCannotBeCut) {
  const auto refused = [](const std::vector<double>& costs, int parts, const std::string& words) {
    EXPECT_THAT([&] { balance_costs(costs, parts); }, ThrowsMessage<InvalidArgument>(HasSubstr(words)));
  };
  refused({1, 2}, 3, "2 layers for 3 parts");
  refused({1, 2}, 0, "2 layers for 0 parts");
  refused({1, -1}, 1, "the cost of layer 1 is -1");
  refused({std::numeric_limits<double>::quiet_NaN()}, 1, "the cost of layer 0 is nan");
}

torch::nn::Sequential layers() {
  return torch::nn::Sequential(torch::nn::Linear(16, 256), torch::nn::ReLU(), torch::nn::BatchNorm1d(256),
                               torch::nn::Dropout(0.5), torch::nn::Linear(256, 4));
}

// The bytes that each layer keeps for its backward are known: the input of a product, the result of relu, ...
TEST(LayerCosts, CountBytes) {
  torch::nn::Sequential net(torch::nn::Linear(16, 256), torch::nn::ReLU(), torch::nn::Flatten());
  const at::Tensor sample = torch::ones({8, 16});
  const double weights = 4.0 * (16 * 256 + 256);
  EXPECT_THAT(layer_bytes(net, sample), ElementsAre(4.0 * 8 * 16 + 2 * weights, 4.0 * 8 * 256, 0));
  EXPECT_THAT(layer_bytes(net, sample, /*micro_batches=*/3, /*param_scale=*/4),
              ElementsAre(3 * 4.0 * 8 * 16 + 4 * weights, 3 * 4.0 * 8 * 256, 0));
}

TEST(LayerCosts, MeasureEachLayerAndLeaveTheModelAsItWas) {
  torch::nn::Sequential net = layers();
  const at::Tensor random = get_rng_state();
  const std::vector<double> times = layer_times(net, torch::ones({8, 16}), 3);
  ASSERT_EQ(times.size(), 5);
  for (const double time : times) EXPECT_GT(time, 0);
  layer_bytes(net, torch::ones({8, 16}));
  for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_TRUE(net->named_buffers()["2.running_mean"].equal(torch::zeros({256})));
  EXPECT_TRUE(get_rng_state().equal(random));
}

// Notes that it runs.
struct NotesItsRunsImpl : torch::nn::Module {
  NotesItsRunsImpl(int own_layer, std::vector<int>& of_all) : layer(own_layer), runs(of_all) {}
  at::Tensor forward(const at::Tensor& x) {
    runs.push_back(layer);
    return x.clone();
  }
  int layer;
  std::vector<int>& runs;
};
TORCH_MODULE(NotesItsRuns);

// So a moment in which the machine is slow does not meet all trials of one layer, and none of the others'.
TEST(LayerCosts, AreMeasuredInRoundsOverAllLayers) {
  std::vector<int> runs;
  torch::nn::Sequential net;
  for (int layer = 0; layer < 3; ++layer) net->push_back(NotesItsRuns(layer, runs));
  layer_times(net, torch::ones({2}), /*trials=*/2);
  runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
  EXPECT_THAT(runs, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2));  // the first round does not count
}

TEST(SequentialPart, KeepsModulesAndTheirNames) {
  torch::nn::Sequential net = layers();
  const auto all = net->named_parameters();
  torch::nn::Sequential last = sequential_part(net, {2, 3}, 1);
  ASSERT_EQ(last->size(), 3);
  for (const auto& entry : last->named_parameters())
    EXPECT_TRUE(entry.value().is_same(all[entry.key()])) << entry.key();
  EXPECT_EQ(last->named_parameters().size(), 4);
  const at::Tensor x = torch::ones({3, 16});
  net->eval();
  EXPECT_TRUE(last->forward(sequential_part(net, {2, 3}, 0)->forward(x)).equal(net->forward(x)));
  const auto refused = [&](const std::vector<std::int64_t>& balance, int part) {
    EXPECT_THAT([&] { sequential_part(net, balance, part); },
                ThrowsMessage<InvalidArgument>(HasSubstr("for 5 layers")));
  };
  refused({2, 2}, 0);
  refused({5, 0}, 0);
  refused({2, 3}, 2);
}

}  // namespace
}  // namespace lockstep::balance_test
