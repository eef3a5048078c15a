// find_unused_parameters inside one rank.
#include "lockstep/parallel/ddp/reducer.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "testing/fake_ddp.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::fake_group;
using ::testing::HasSubstr;
using testing::one_each;
using ::testing::ThrowsMessage;

TEST(UnusedParameters, AcceptsUnusedParametersAndDoesNotWaitForThem) {
  auto backend = fake_group();
  const torch::Tensor first = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor idle = torch::full({1}, 3.0, torch::requires_grad());
  const torch::Tensor last = torch::full({1}, 5.0, torch::requires_grad());
  auto options = one_each(backend);
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(NamedTensors{{"first", first}, {"idle", idle}, {"last", last}}, {}, options);
  auto [loss, number] = ddp.forward([&] { return std::tuple((first * 1) * last, 1); });
  loss.backward();
  EXPECT_EQ(ddp.stats().buckets_overlapped, 2u);  // "last" and "idle", before "first" had arrived
  EXPECT_FALSE(idle.grad().defined());
  EXPECT_EQ(first.grad().item<float>(), 5.0F);

  idle.mutable_grad() = torch::full({1}, 42.0);
  for (int i = 0; i < 2; ++i) ddp.forward([&] { return first * last; }).backward();
  EXPECT_EQ(idle.grad().item<float>(), 42.0F);
  ddp.forward([&] { return first * last * idle; }).backward();
  ddp.forward([&] { return first * last; }).backward();  // now .grad lies in the bucket
  EXPECT_EQ(idle.grad().item<float>(), 52.0F);
}

struct OpaqueOutput {
  torch::Tensor hidden;
};

TEST(UnusedParameters, FindsUnusedParametersBehindOutputsItCannotLookInto) {
  auto backend = fake_group();
  const torch::Tensor first = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor idle = torch::full({1}, 3.0, torch::requires_grad());
  auto options = one_each(backend);
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(NamedTensors{{"first", first}, {"idle", idle}}, {}, options);
  ddp.forward([&] { return OpaqueOutput{first * 2}; }).hidden.backward();
  EXPECT_EQ(first.grad().item<float>(), 2.0F);
  EXPECT_FALSE(idle.grad().defined());
}

TEST(UnusedParameters, TakesPartWithoutABackwardWhenTheOutputsReachNoParameter) {
  auto backend = fake_group();
  const torch::Tensor w = torch::full({1}, 2.0, torch::requires_grad());
  auto options = one_each(backend);
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(NamedTensors{{"w", w}}, {}, options);
  ddp.forward([&] { return torch::ones({1}); });
  EXPECT_EQ(ddp.stats().reductions, 1u);
  ddp.eval();
  ddp.forward([&] { return torch::ones({1}); });
  EXPECT_EQ(ddp.stats().reductions, 1u);
  w.requires_grad_(false);  // a frozen adversary: nobody expects gradients
  ddp.train();
  ddp.forward([&] { return torch::ones({1}); });
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

// The loss uses "last" beside the outputs of forward, where the search for unused parameters does not look.
// Autograd runs what was computed later first.
struct UseBeside {
  explicit UseBeside(bool after_forward) {
    auto options = one_each(fake_group());
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(NamedTensors{{"first", first}, {"last", last}}, {}, options);
    torch::Tensor beside = last * 7;
    const torch::Tensor output = ddp.forward([&] { return first * 1; });
    if (after_forward) beside = last * 7;
    (output + beside).backward();
  }
  torch::Tensor first = torch::full({1}, 2.0, torch::requires_grad());
  torch::Tensor last = torch::full({1}, 3.0, torch::requires_grad());
};

TEST(UnusedParameters, RefusesAGradientThatComesAfterTheBucketHasStarted) {
  EXPECT_THAT(
      [] { UseBeside(/*after_forward=*/false); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"last\""), HasSubstr("after it was found unused"))));
}

TEST(UnusedParameters, TakesAGradientThatComesInTime) {
  EXPECT_EQ(UseBeside(/*after_forward=*/true).last.grad().item<float>(), 7.0F);
}

}  // namespace
}  // namespace lockstep
