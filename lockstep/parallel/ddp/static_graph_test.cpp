// static_graph inside one rank.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "testing/fake_ddp.h"
#include "testing/reentrant_checkpoint.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::checkpointed_product;
using ::testing::ElementsAre;
using testing::fake_group;
using testing::FakeBackend;
using ::testing::HasSubstr;
using testing::one_each;
using ::testing::ThrowsMessage;

DistributedDataParallelOptions static_graph(const std::shared_ptr<FakeBackend>& backend) {
  auto options = one_each(backend);
  options.static_graph = true;
  return options;
}

struct StaticGraph : ::testing::Test {
  std::shared_ptr<FakeBackend> backend = fake_group();
  torch::Tensor a = torch::full({1}, 2.0, torch::requires_grad());
  torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  torch::Tensor c = torch::full({1}, 5.0, torch::requires_grad());
  DistributedDataParallel<void> ddp{NamedTensors{{"a", a}, {"b", b}, {"c", c}}, {}, static_graph(backend)};

  std::uint64_t reductions() const { return ddp.stats().reductions; }
  int all_reduces() const { return backend->count_of(Verb::ALL_REDUCE); }
};

TEST_F(StaticGraph, AveragesOnceWhenCheckpointsShareAParameter) {
  for (int step = 1; step <= 3; ++step) {  // a b b c
    ddp.forward([&] { return checkpointed_product(checkpointed_product(a * 1, b), b) * c; }).backward();
    EXPECT_EQ(a.grad().item<float>(), step * 45.0F);
    EXPECT_EQ(b.grad().item<float>(), step * 60.0F);
    EXPECT_EQ(c.grad().item<float>(), step * 18.0F);
    EXPECT_EQ(reductions(), static_cast<std::uint64_t>(step));
  }
  EXPECT_EQ(ddp.stats().buckets_overlapped, 4u);  // "c" and "b", from the second step on
}

TEST_F(StaticGraph, EndsWithTheOuterBackwardWhenEverythingIsCheckpointed) {
  const torch::Tensor x = torch::full({1}, 2.0, torch::requires_grad());
  for (int step = 1; step <= 3; ++step) {
    const auto output = ddp.forward([&] {
      return checkpointed_product(
          checkpointed_product(checkpointed_product(checkpointed_product(x, a), b), c), a);
    });
    output.backward();
    EXPECT_EQ(a.grad().item<float>(), step * 120.0F);  // 2 a b c x
    EXPECT_EQ(b.grad().item<float>(), step * 40.0F);
    EXPECT_EQ(reductions(), static_cast<std::uint64_t>(step));
  }
}

TEST_F(StaticGraph, FindsUnusedParametersOnce) {
  ddp.forward([&] { return (a * 1) * c; }).backward();
  EXPECT_EQ(all_reduces(), 4);  // three buckets, and which of them are used
  b.mutable_grad() = torch::full({1}, 42.0);
  for (int step = 1; step <= 3; ++step) {
    ddp.forward([&] { return (a * 1) * c; }).backward();
    EXPECT_EQ(all_reduces(), 4 + 3 * step);
    EXPECT_EQ(b.grad().item<float>(), 42.0F);
    EXPECT_EQ(a.grad().item<float>(), (1 + step) * 5.0F);
  }
  EXPECT_EQ(ddp.stats().buckets_overlapped, 3u);  // "c"; that of "b" comes last, after "a"
}

TEST_F(StaticGraph, NamesAParameterThatIsUsedNoMore) {
  ddp.forward([&] { return a * b * c; }).backward();
  auto loss = ddp.forward([&] { return a * c; });
  const auto names_it = AllOf(HasSubstr("parameter \"b\" got fewer gradients"), HasSubstr("static"));
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<InvalidArgument>(names_it));
  EXPECT_THAT(backend->aborts, ElementsAre(names_it));
}

TEST_F(StaticGraph, NamesAParameterThatIsUsedForTheFirstTime) {
  ddp.forward([&] { return a * c; }).backward();
  auto loss = ddp.forward([&] { return a * b * c; });
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("parameter \"b\" got more gradients"),
                                                   HasSubstr("first (0)"), HasSubstr("static"))));
}

TEST_F(StaticGraph, NamesAParameterThatIsUsedMoreOften) {
  ddp.forward([&] { return checkpointed_product(a * 1, b) * c; }).backward();
  auto loss = ddp.forward([&] { return checkpointed_product(checkpointed_product(a * 1, b), b) * c; });
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("parameter \"b\" got more gradients"), HasSubstr("first (1)"))));
}

TEST_F(StaticGraph, LeavesLocalPassesAlone) {
  {
    auto guard = ddp.no_sync();
    ddp.forward([&] { return a * 1; }).backward();
  }
  for (int step = 1; step <= 2; ++step) {
    a.mutable_grad().reset();
    {
      auto guard = ddp.no_sync();
      ddp.forward([&] { return checkpointed_product(checkpointed_product(a * 1, b), b); }).backward();
    }
    ddp.forward([&] { return a * c; }).backward();
    EXPECT_EQ(reductions(), static_cast<std::uint64_t>(step));
    EXPECT_EQ(a.grad().item<float>(), 9.0F + 5.0F);
    EXPECT_EQ(b.grad().item<float>(), step * 12.0F);  // 2 a b: a contribution like any other
  }
}

TEST_F(StaticGraph, AGradientPenaltyBeforeTheBackwardEndsNothing) {
  for (int step = 1; step <= 2; ++step) {
    const torch::Tensor x = torch::full({1}, 1.0, torch::requires_grad());
    const torch::Tensor y = ddp.forward([&] { return x * a * b * c; });
    const auto slope = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    EXPECT_EQ(reductions(), static_cast<std::uint64_t>(step - 1));
    slope.pow(2).backward();
    EXPECT_EQ(reductions(), static_cast<std::uint64_t>(step));
    EXPECT_EQ(a.grad().item<float>(), step * 2 * 30.0F * 15.0F);
  }
}

}  // namespace
}  // namespace lockstep
