#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/job/groups.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

// Against libtorch's batch normalisation of the joined batch in one process: outputs, gradients, running
// statistics.
namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

// Every rank knows the whole batch and takes its share.
struct Shares {
  std::vector<std::int64_t> sizes;  // of each rank's batch
  int rank;

  std::int64_t total() const { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }
  at::Tensor of(const at::Tensor& whole) const {
    std::int64_t before = 0;
    for (int r = 0; r < rank; ++r) before += sizes[static_cast<std::size_t>(r)];
    return whole.narrow(0, before, sizes[static_cast<std::size_t>(rank)]);
  }
};

Shares unequal(int rank, int ranks) {
  Shares shares{.rank = rank};
  for (int r = 0; r < ranks; ++r) shares.sizes.push_back(r + 2);
  return shares;
}

struct Setting {
  std::vector<std::int64_t> rest;  // sizes behind (N, C)
  bool affine = true;
  bool tracked = true;
  std::optional<double> momentum = 0.1;
  at::ScalarType type = at::kDouble;
  double tolerance = 1e-12;
};

void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance, const char* what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (expected.numel() == 0) return;
  const double scale = std::max(1e-300, expected.abs().max().item<double>());
  EXPECT_LE((actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>() / scale, tolerance)
      << what;
}

constexpr std::int64_t CHANNELS = 5;

SyncBatchNorm layer_of(const Setting& setting, std::uint64_t seed) {
  SyncBatchNorm layer(SyncBatchNormOptions(CHANNELS)
                          .momentum(setting.momentum)
                          .affine(setting.affine)
                          .track_running_stats(setting.tracked));
  layer->to(setting.type);
  const at::NoGradGuard no_grad;
  if (setting.affine) {
    layer->weight.copy_(random_values({CHANNELS}, seed));
    layer->bias.copy_(random_values({CHANNELS}, seed + 1));
  }
  return layer;
}

// Three steps of the layer on this rank's share beside libtorch's batch_norm on the whole batch.
void compare(const Setting& setting, const Shares& shares) {
  SyncBatchNorm layer = layer_of(setting, 3);
  const auto copy = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().clone() : tensor;
  };
  at::Tensor weight = copy(layer->weight);
  at::Tensor bias = copy(layer->bias);
  const at::Tensor running_mean = copy(layer->running_mean);
  const at::Tensor running_var = copy(layer->running_var);
  if (setting.affine) weight.set_requires_grad(true), bias.set_requires_grad(true);
  std::vector<std::int64_t> sizes = {shares.total(), CHANNELS};
  sizes.insert(sizes.end(), setting.rest.begin(), setting.rest.end());

  for (std::uint64_t step = 0; step < 3; ++step) {
    const at::Tensor data = random_values(sizes, 10 + step, setting.type) * 3 + 100;
    const at::Tensor slope = random_values(sizes, 20 + step, setting.type);
    const at::Tensor whole = data.clone().set_requires_grad(true);
    const double factor = setting.momentum.value_or(1.0 / static_cast<double>(step + 1));
    const at::Tensor expected =
        at::batch_norm(whole, weight, bias, running_mean, running_var, true, factor, 1e-5, false);
    (expected * slope).sum().backward();

    const at::Tensor own = shares.of(data).clone().set_requires_grad(true);
    const at::Tensor output = layer->forward(own);
    EXPECT_EQ(output.scalar_type(), setting.type);
    (output * shares.of(slope)).sum().backward();

    expect_near(output, shares.of(expected.detach()), setting.tolerance, "output");
    expect_near(own.grad(), shares.of(whole.grad()), setting.tolerance * 10, "gradient of the input");
    if (setting.tracked) {
      expect_near(layer->running_mean, running_mean, setting.tolerance, "running_mean");
      expect_near(layer->running_var, running_var, setting.tolerance, "running_var");
      EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), static_cast<std::int64_t>(step + 1));
    }
    if (!setting.affine) continue;
    const at::Tensor sums = at::stack({layer->weight.grad(), layer->bias.grad()}).to(at::kDouble);
    all_reduce(sums);
    expect_near(sums[0], weight.grad(), setting.tolerance * 10, "gradient of the weight");
    expect_near(sums[1], bias.grad(), setting.tolerance * 10, "gradient of the bias");
  }
}

RANKS_TEST(SyncBatchNorm, IsBatchNormOfTheJoinedBatch, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const Shares shares = unequal(rank(), size());
  for (const auto& rest : std::vector<std::vector<std::int64_t>>{{}, {3}, {4, 3}, {2, 3, 2}}) {
    SCOPED_TRACE(rest.size());
    compare({.rest = rest}, shares);
    compare({.rest = rest, .affine = false}, shares);
    compare({.rest = rest, .tracked = false}, shares);
    compare({.rest = rest, .affine = false, .tracked = false}, shares);
    compare({.rest = rest, .momentum = std::nullopt}, shares);
    compare({.rest = rest, .type = at::kFloat, .tolerance = 2e-5}, shares);
  }
}

RANKS_TEST(SyncBatchNorm, TakesAnEmptyBatchAndOneSample, Ranks(2, 3, 4)) {
  for (int empty = 0; empty < size(); ++empty) {
    Shares shares{.rank = rank()};
    for (int r = 0; r < size(); ++r)
      shares.sizes.push_back(r == empty ? 0 : r == (empty + 1) % size() ? 2 : 1);
    compare({.rest = {}}, shares);
    compare({.rest = {2, 2}}, shares);
  }
}

// 16-bit inputs, with parameters of the same type or of float32 (as under autocast), beside float32.
RANKS_TEST(SyncBatchNorm, NormalisesShortTypesInFloat32, Ranks(2, 3)) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const bool wide_parameters : {true, false}) {
      const at::Tensor data = random_values({4 * size(), CHANNELS, 3}, 5).to(type);
      const at::Tensor whole = data.to(at::kFloat).set_requires_grad(true);
      const at::Tensor expected = at::batch_norm(whole, {}, {}, {}, {}, true, 0.1, 1e-5, false);
      const at::Tensor slope = random_values(data.sizes(), 6).to(type);
      (expected * slope.to(at::kFloat)).sum().backward();
      SyncBatchNorm layer = layer_of({.affine = true}, 3);
      layer->to(wide_parameters ? at::kFloat : type);
      const at::NoGradGuard no_grad;
      layer->weight.fill_(1);
      layer->bias.fill_(0);
      const at::AutoGradMode grad(true);
      const at::Tensor own = data.narrow(0, 4 * rank(), 4).clone().set_requires_grad(true);
      const at::Tensor output = layer->forward(own);
      (output * slope.narrow(0, 4 * rank(), 4)).sum().backward();
      EXPECT_EQ(output.scalar_type(), type);
      expect_near(output, expected.detach().narrow(0, 4 * rank(), 4), 5e-3, "output");
      expect_near(own.grad(), whole.grad().narrow(0, 4 * rank(), 4), 1e-2, "gradient");
    }
  }
}

// The same memory layout in as out, as libtorch's.
RANKS_TEST(SyncBatchNorm, TakesChannelsLast, Ranks(1, 2)) {
  const at::Tensor data = random_values({2, CHANNELS, 4, 3}, 8 + static_cast<std::uint64_t>(rank()));
  SyncBatchNorm layer = layer_of({}, 3);
  SyncBatchNorm other = layer_of({}, 3);
  const at::Tensor expected = layer->forward(data);
  const at::Tensor actual = other->forward(data.contiguous(at::MemoryFormat::ChannelsLast));
  expect_near(actual, expected, 1e-14, "output");
  EXPECT_TRUE(actual.is_contiguous(at::MemoryFormat::ChannelsLast));
}

// Differences of large squares would leave nothing of a spread of one at an offset of 1e8.
RANKS_TEST(SyncBatchNorm, IsStableFarFromZero, Ranks(2, 4)) {
  const at::Tensor base = random_values({6 * size(), CHANNELS}, 4);
  const at::Tensor own = (base + 1e8).narrow(0, 6 * rank(), 6);
  const at::Tensor exact = (base + 1e8) - 1e8;  // what the numbers hold
  const at::Tensor expected =
      at::batch_norm(exact, {}, {}, {}, {}, true, 0.1, 1e-5, false).narrow(0, 6 * rank(), 6);
  SyncBatchNorm layer = layer_of({.affine = false}, 3);
  expect_near(layer->forward(own), expected, 1e-7, "output");
}

// Central differences of the loss of all ranks together, for each element of each rank's input.
RANKS_TEST(SyncBatchNorm, HasTheGradientOfItsForward, Ranks(2, 3)) {
  const at::Tensor input = random_values({2 + rank(), 2, 2}, 40 + static_cast<std::uint64_t>(rank()));
  SyncBatchNorm layer(SyncBatchNormOptions(2).track_running_stats(false));
  layer->to(at::kDouble);
  const auto loss_of = [&](const at::Tensor& x) { return (layer->forward(x).pow(3) * (rank() + 1.0)).sum(); };
  const auto total = [&] {
    const at::NoGradGuard no_grad;
    const at::Tensor sum = loss_of(input);
    all_reduce(sum);
    return sum.item<double>();
  };
  const at::Tensor leaf = input.clone().set_requires_grad(true);
  loss_of(leaf).backward();
  for (int r = 0; r < size(); ++r) {
    for (std::int64_t i = 0; i < (2 + r) * 4; ++i) {
      constexpr double STEP = 1e-5;
      const auto move = [&](double by) {
        if (rank() == r) input.view({-1})[i] += by;
      };
      move(STEP);
      const double above = total();
      move(-2 * STEP);
      const double below = total();
      move(STEP);
      if (rank() != r) continue;
      EXPECT_NEAR(leaf.grad().view({-1})[i].item<double>(), (above - below) / (2 * STEP), 1e-8);
    }
  }
}

// Rank 0 evaluates while the others do something else; with running statistics, and without.
RANKS_TEST(SyncBatchNorm, DoesNotCommunicateInEvalMode, Ranks(2, 3)) {
  for (const bool tracked : {true, false}) {
    SyncBatchNorm layer = layer_of({.tracked = tracked}, 3);
    const at::Tensor data = random_values({4, CHANNELS, 3}, 9);
    layer->forward(data + rank());
    layer->eval();
    if (rank() == 0) {
      const at::Tensor expected = at::batch_norm(data, layer->weight, layer->bias, layer->running_mean,
                                                 layer->running_var, !tracked, 0.1, 1e-5, false);
      EXPECT_TRUE(layer->forward(data).equal(expected));
      EXPECT_TRUE(!tracked || layer->num_batches_tracked.item<std::int64_t>() == 1);
    }
    barrier();
  }
}

RANKS_TEST(SyncBatchNorm, NormalisesOverItsGroup, Ranks(4)) {
  const ProcessGroup pair = split_group(world(), rank() / 2, rank());
  SyncBatchNorm layer(SyncBatchNormOptions(CHANNELS).affine(false).process_group(pair));
  const at::Tensor whole =
      random_values({8, CHANNELS}, 30 + static_cast<std::uint64_t>(rank() / 2), at::kFloat);
  const at::Tensor expected = at::batch_norm(whole, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  expect_near(layer->forward(whole.narrow(0, 4 * (rank() % 2), 4)), expected.narrow(0, 4 * (rank() % 2), 4),
              1e-6, "output");
}

RANKS_TEST(SyncBatchNorm, SaysWhatItCannotTake, Ranks(1, 2)) {
  SyncBatchNorm layer = layer_of({}, 3);
  EXPECT_THAT([&] { layer->forward(at::ones({3}, at::kDouble)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected (N, C)")));
  EXPECT_THAT(
      [&] {
        layer->forward(at::ones({3, CHANNELS + 1}, at::kDouble));
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("6 channels"), HasSubstr("the layer has 5"))));
  if (size() == 1) return;
  EXPECT_THAT(
      [&] {
        layer->forward(at::ones({rank(), CHANNELS}, at::kDouble));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("a single value per channel")));
  EXPECT_EQ(layer->forward(at::ones({0, CHANNELS}, at::kDouble)).numel(), 0);
  const at::Tensor input = random_values({4, CHANNELS}, 2).set_requires_grad(true);
  const at::Tensor loss = layer->forward(input).pow(2).sum();
  EXPECT_THAT([&] { torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true); },
              ThrowsMessage<InvalidArgument>(HasSubstr("create_graph")));
}

RANKS_TEST(SyncBatchNorm, IsNamedAsBatchNormInAFile, Ranks(1)) {
  torch::nn::BatchNorm2d plain(CHANNELS);
  SyncBatchNorm synchronised(CHANNELS);
  const NamedTensors expected = state_dict(*plain);
  const NamedTensors actual = state_dict(*synchronised);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    EXPECT_TRUE(actual[i].second.equal(expected[i].second));
  }
  std::ostringstream text;
  text << *synchronised;
  EXPECT_EQ(text.str(),
            "lockstep::SyncBatchNorm(5, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");
}

}  // namespace
}  // namespace lockstep
