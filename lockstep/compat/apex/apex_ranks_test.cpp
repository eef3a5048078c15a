// Apex's loop on several ranks, and its options of DistributedDataParallel, against formulas.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/compat/apex/amp.h"
#include "lockstep/compat/apex/parallel.h"
#include "lockstep/job/groups.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep::compat::apex {
namespace {

namespace amp = lockstep::compat::apex::amp;

struct WeightsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& factor) { return (a.sum() + b.sum()) * factor; }
  at::Tensor a = register_parameter("a", torch::full({3}, 0.25));
  at::Tensor b = register_parameter("b", torch::full({70}, 0.5));
};
TORCH_MODULE(Weights);

// The gradient of a model whose gradient on rank r is r + 1.
double gradient(int rank, const parallel::DistributedDataParallelOptions& options, std::size_t buckets,
                at::ScalarType dtype = at::kFloat) {
  Weights net;
  net->to(dtype);
  parallel::DistributedDataParallel ddp(net, options);
  ddp(torch::full({}, rank + 1.0, dtype)).backward();
  EXPECT_EQ(ddp.stats().buckets, buckets);
  const double value = net->a.grad()[0].item<double>();
  EXPECT_TRUE(net->b.grad().eq(value).all().item<bool>());
  return value;
}

RANKS_TEST(Apex, RefusesAProcessOutsideOfTheGroup, Ranks(2)) {
  const ProcessGroup group = new_group({0});
  if (rank() == 0) return;
  const auto refused =
      ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("not in the group, whose ranks are 0"));
  Weights net;
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  EXPECT_THAT([&] { parallel::Reducer(net->parameters(), group); }, refused);
  EXPECT_THAT([&] { parallel::DistributedDataParallel(net, {.process_group = group}); }, refused);
  EXPECT_THAT([&] { amp::initialize(net, optimizer, "O1", {.process_group = group}); }, refused);
}

RANKS_TEST(ApexDdp, OptionsDoWhatApexsDo, Ranks(1, 2, 3, 4)) {
  const double mean = (size() + 1) / 2.0, sum = mean * size();
  const auto group = world();
  EXPECT_DOUBLE_EQ(gradient(rank(), {.process_group = group}, 1), mean);
  EXPECT_DOUBLE_EQ(gradient(rank(), {.message_size = 1, .process_group = group}, 2), mean);
  EXPECT_DOUBLE_EQ(gradient(rank(), {.message_size = 1, .delay_allreduce = true, .process_group = group}, 1),
                   mean);
  EXPECT_DOUBLE_EQ(gradient(rank(), {.gradient_average = false, .process_group = group}, 1), sum);
  EXPECT_FLOAT_EQ(gradient(rank(), {.gradient_predivide_factor = 2, .process_group = group}, 1), mean);
  EXPECT_FLOAT_EQ(
      gradient(rank(), {.gradient_average = false, .gradient_predivide_factor = 4, .process_group = group},
               1),
      sum / 4);
  EXPECT_NEAR(gradient(rank(), {.allreduce_always_fp32 = true, .process_group = group}, 1, at::kHalf), mean,
              2e-3);
}

// Loading gives libtorch's parameters new gradient accumulators.
RANKS_TEST(ApexDdp, AveragesAfterALoad, Ranks(1, 2, 3)) {
  Weights net;
  parallel::DistributedDataParallel ddp(net, {.process_group = world()});
  for (int step = 0; step < 3; ++step) {
    std::stringstream file;
    torch::save(net, file);
    torch::load(net, file);
    ddp(torch::full({}, rank() + 1.0)).backward();
    EXPECT_TRUE(net->a.grad().eq((size() + 1) / 2.0).all().item<bool>()) << "step " << step;
    for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad().reset();
  }
}

RANKS_TEST(ApexReducer, AveragesWhenTold, Ranks(1, 2, 3, 4)) {
  const at::Tensor w = torch::full({3}, static_cast<float>(rank()), torch::requires_grad());
  const parallel::Reducer reducer({w}, world());
  EXPECT_TRUE(w.equal(torch::zeros({3})));
  (w * (rank() + 1)).sum().backward();
  reducer.reduce();
  EXPECT_TRUE(w.grad().allclose(torch::full({3}, (size() + 1) / 2.0F)));
}

// State that was loaded on rank 0 alone.
RANKS_TEST(ApexAmp, ScalesThatDifferAreAMismatchWithBoth, Ranks(2, 3), Backends("shm", "tcp")) {
  torch::nn::Linear net(2, 1);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = amp::initialize(net, sgd, "O1", {.process_group = world()});
  NamedTensors state = amp::state_dict(optimizer);
  state[0].second = torch::full_like(state[0].second, 1024);
  if (rank() == 0) amp::load_state_dict(optimizer, state);
  amp::scale_loss(model(torch::ones({1, 2})).sum(), optimizer).backward();
  EXPECT_THAT([&] { optimizer.step(); },
              ::testing::ThrowsMessage<Mismatch>(::testing::AllOf(
                  ::testing::HasSubstr("with the scale 1024"), ::testing::HasSubstr("with the scale 65536"),
                  ::testing::HasSubstr("alike on all ranks"))));
}

// The article's program at every level: N ranks, each with its own batch.
RANKS_TEST(ApexAmp, TrainsTheSameModelOnEveryRank, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  for (const char* const level : {"O0", "O1", "O2", "O3"}) {
    torch::manual_seed(rank());
    const at::Tensor x = torch::randn({16, 12}), y = torch::randn({16, 4});
    torch::nn::Linear net(12, 4);
    torch::optim::SGD sgd(net->parameters(), 0.05);
    auto [model, optimizer] = amp::initialize(net, sgd, level, {.process_group = world()});
    parallel::DistributedDataParallel ddp(model, {.process_group = world()});
    double first = 0, loss_now = 0;
    for (int t = 0; t < 40; ++t) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::mse_loss(ddp(x), y);
      amp::scale_loss(loss, optimizer).backward();
      // On one rank alone a gradient overflows after the average: all skip.
      if (t == 7 && rank() == size() - 1 && std::string(level) == "O1") {
        net->weight.mutable_grad()[0][0] = std::numeric_limits<float>::quiet_NaN();
        amp::scale_loss(torch::zeros({}, torch::requires_grad()), optimizer).backward();
      }
      const bool skips = t == 7 && std::string(level) == "O1";
      EXPECT_EQ(optimizer.step(), !skips) << level;
      loss_now = loss.item<double>();
      if (t == 0) first = loss_now;
    }
    EXPECT_LT(loss_now, 0.8 * first) << level;
    for (const at::Tensor& master : amp::master_params(optimizer)) {
      std::vector<at::Tensor> all;
      for (int r = 0; r < size(); ++r) all.push_back(torch::empty_like(master));
      all_gather(all, master.detach(), world());
      for (const at::Tensor& other : all) EXPECT_TRUE(other.equal(master)) << level;
    }
  }
}

}  // namespace
}  // namespace lockstep::compat::apex
