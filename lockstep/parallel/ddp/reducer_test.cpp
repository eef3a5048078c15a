// What the reducer does inside one rank: when it starts what, and what it copies. That the averages are right
// is shown by several ranks in distributed_data_parallel_ranks_test.cpp.
#include "lockstep/parallel/ddp/reducer.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <thread>

#include "lockstep/base/error.h"
#include "testing/fake_ddp.h"
#include "testing/reentrant_checkpoint.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Chain;
using testing::checkpointed_product;
using ::testing::ElementsAre;
using testing::fake_group;
using ::testing::HasSubstr;
using testing::one_bucket;
using testing::one_each;
using ::testing::ThrowsMessage;

TEST(Reducer, StartsBucketsDuringTheVeryFirstBackward) {
  auto backend = fake_group();
  Chain net;
  DistributedDataParallel ddp(net, one_each(backend));
  std::vector<std::string> events;
  backend->on_start = [&](const Request& request) {
    if (request.verb == Verb::ALL_REDUCE) events.emplace_back("start");
  };
  for (const auto& parameter : net->named_parameters()) {
    parameter.value().register_hook(
        [&, name = parameter.key()](const torch::Tensor&) { events.push_back(name); });
  }
  ddp->forward(torch::ones({1})).backward();
  EXPECT_THAT(events, ElementsAre("last", "start", "middle", "start", "first", "start"));
  EXPECT_EQ(ddp.stats().buckets_started, 3u);
  EXPECT_EQ(ddp.stats().buckets_overlapped, 2u);
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(Reducer, StartsBucketsInIndexOrderWhateverArrivesFirst) {
  auto backend = fake_group();
  const torch::Tensor one = torch::ones({1}, torch::requires_grad());
  const torch::Tensor two = torch::ones({2}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"one", one}, {"two", two}}, {}, one_each(backend));
  std::vector<std::string> events;
  backend->on_start = [&](const Request& request) {
    if (request.verb == Verb::ALL_REDUCE) events.push_back("start " + std::to_string(request.count));
  };
  one.register_hook([&](const torch::Tensor&) { events.emplace_back("one"); });
  two.register_hook([&](const torch::Tensor&) { events.emplace_back("two"); });
  ddp.forward([&] { return ((two * two).sum() * one).sum(); }).backward();  // backward reaches "one" first
  EXPECT_THAT(events, ElementsAre("one", "two", "start 2", "start 1"));
}

TEST(Reducer, CopiesEachFreshGradientOnceAndNothingWhenGradientsAreKept) {
  auto backend = fake_group();
  Chain net;
  DistributedDataParallel ddp(net, one_each(backend));
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  constexpr std::uint64_t GRADIENT_BYTES = 3 * sizeof(float);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    optimizer.zero_grad();
    ddp->forward(torch::ones({1})).backward();
    EXPECT_EQ(ddp.stats().bytes_copied, step * GRADIENT_BYTES);
    EXPECT_EQ(ddp.stats().last_step_bytes_copied, GRADIENT_BYTES);
    optimizer.step();
  }
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad(/*set_to_none=*/false);
    ddp->forward(torch::ones({1})).backward();
    optimizer.step();
  }
  net->zero_grad(/*set_to_none=*/false);
  ddp->forward(torch::ones({1})).backward();
  EXPECT_EQ(ddp.stats().bytes_copied, 3 * GRADIENT_BYTES);
  EXPECT_EQ(ddp.stats().last_step_bytes_copied, 0u);
  EXPECT_EQ(ddp.stats().reductions, 7u);
  EXPECT_EQ(ddp.stats().bucket_bytes, 3 * sizeof(float));
}

TEST(Reducer, LeavesGradientsWithTheLayoutOfTheParameter) {
  auto backend = fake_group();
  torch::nn::Conv2d conv(3, 4, 3);
  conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  DistributedDataParallel ddp(conv, one_bucket(backend));
  ddp->forward(torch::ones({1, 3, 5, 5})).sum().backward();
  EXPECT_EQ(conv->weight.grad().strides(), conv->weight.strides());
  EXPECT_TRUE(
      torch::equal(conv->weight.grad(), torch::full({4, 3, 3, 3}, 9.0)));  // 3 x 3 places of each window
  EXPECT_FALSE(conv->weight.grad().is_view());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(conv->weight.grad().data_ptr()) % GRADIENT_ALIGNMENT_BYTES, 0u);
}

TEST(Reducer, AddsToGradientsThatExistedBefore) {
  auto backend = fake_group();
  Chain net;
  net->parameters()[0].mutable_grad() = torch::full({1}, 100.0);
  DistributedDataParallel ddp(net, one_each(backend));
  ddp->forward(torch::ones({1})).backward();
  EXPECT_EQ(net->parameters()[0].grad().item<float>(), 104.0F);
  EXPECT_EQ(net->parameters()[1].grad().item<float>(), 4.0F);
}

// Hides `weight` from the graph and runs a backward inside the backward.
TEST(Reducer, AveragesOnceWhenABackwardRunsInsideTheBackward) {
  auto backend = fake_group();
  const torch::Tensor a = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  const torch::Tensor c = torch::full({1}, 5.0, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"a", a}, {"b", b}, {"c", c}}, {}, one_each(backend));
  for (int step = 1; step <= 2; ++step) {
    ddp.forward([&] { return checkpointed_product(a * 1, b) * c; }).backward();
    EXPECT_EQ(a.grad().item<float>(), step * 15.0F);
    EXPECT_EQ(b.grad().item<float>(), step * 10.0F);
    EXPECT_EQ(c.grad().item<float>(), step * 6.0F);
    EXPECT_EQ(ddp.stats().reductions, static_cast<std::uint64_t>(step));
  }
}

TEST(Reducer, AveragesWhenEveryParameterIsCheckpointed) {
  auto backend = fake_group();
  const torch::Tensor x = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  const torch::Tensor c = torch::full({1}, 5.0, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"b", b}, {"c", c}}, {}, one_each(backend));
  ddp.forward([&] { return checkpointed_product(checkpointed_product(x, b), c); }).backward();
  EXPECT_EQ(b.grad().item<float>(), 10.0F);
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(Reducer, RefusesASecondGradientOfOneParameterInOneBackward) {
  auto backend = fake_group();
  const torch::Tensor x = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"b", b}, {"x", x}}, {}, one_each(backend));
  auto loss = ddp.forward([&] { return checkpointed_product(checkpointed_product(x * 1, b), b); });
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"b\""), HasSubstr("second gradient"))));
}

TEST(Reducer, WorksFromThreadToThread) {
  auto backend = fake_group();
  Chain net;
  DistributedDataParallel ddp(net, one_each(backend));
  for (int step = 0; step < 3; ++step) {
    std::thread([&] { ddp->forward(torch::ones({1})).backward(); }).join();
  }
  EXPECT_EQ(ddp.stats().reductions, 3u);
  EXPECT_EQ(net->parameters()[0].grad().item<float>(), 12.0F);
}

TEST(Reducer, KeepsTheUsersOwnHookOnTheParameter) {
  struct Count : torch::autograd::PostAccumulateGradHook {
    explicit Count(int* calls) : calls_(calls) {}
    void operator()(const torch::Tensor&) override { ++*calls_; }
    int* calls_;
  };
  auto backend = fake_group();
  Chain net;
  int calls_before = 0;
  int calls_after = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(net->parameters()[0],
                                                 std::make_unique<Count>(&calls_before));
  DistributedDataParallel ddp(net, one_each(backend));
  torch::autograd::impl::set_post_acc_grad_hooks(net->parameters()[1], std::make_unique<Count>(&calls_after));
  ddp->forward(torch::ones({1})).backward();
  EXPECT_EQ(calls_before, 1);
  EXPECT_EQ(calls_after, 1);
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(Reducer, LeavesNothingOnTheModelWhenDestroyed) {
  auto backend = fake_group();
  Chain net;
  { DistributedDataParallel ddp(net, one_each(backend)); }
  const std::size_t started = backend->started.size();
  net->forward(torch::ones({1})).backward();
  EXPECT_EQ(backend->started.size(), started);
  EXPECT_EQ(net->parameters()[0].grad().item<float>(), 4.0F);
}

TEST(Reducer, AveragesInTheLastOfSeveralDeclaredPasses) {
  auto backend = fake_group();
  const torch::Tensor a = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  auto options = one_each(backend);
  options.backward_passes_per_step = 2;
  DistributedDataParallel ddp(NamedTensors{{"a", a}, {"b", b}}, {}, options);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    a.mutable_grad().reset();
    b.mutable_grad().reset();
    ddp.forward([&] { return a * 7; }).backward();
    EXPECT_EQ(ddp.stats().reductions, step - 1);
    ddp.forward([&] { return b * 11; }).backward();
    EXPECT_EQ(ddp.stats().reductions, step);
    EXPECT_EQ(a.grad().item<float>(), 7.0F);
    EXPECT_EQ(b.grad().item<float>(), 11.0F);
  }
  ddp.forward([&] { return a * 1; }).backward();
  auto loss = ddp.forward([&] { return a * 1; });
  a.mutable_grad().reset();
  b.mutable_grad().reset();
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"b\" got no gradient")));
}

}  // namespace
}  // namespace lockstep
