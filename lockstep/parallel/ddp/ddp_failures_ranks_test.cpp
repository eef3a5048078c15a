// Ranks that disagree, forget a parameter or die: who is told what.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

torch::Tensor weight(std::vector<std::int64_t> shape, at::ScalarType type = at::kFloat) {
  return torch::ones(shape, torch::TensorOptions(type).requires_grad(true));
}

// -------------------------------------------------------------------------------------------------------
// construction

void expect_mismatch(const NamedTensors& parameters, const ProcessGroup& group, const std::string& words,
                     DistributedDataParallelOptions options = {}) {
  options.process_group = group;
  EXPECT_THAT([&] { DistributedDataParallel(parameters, NamedTensors(), options); },
              ThrowsMessage<Mismatch>(HasSubstr(words)));
  all_reduce(torch::ones({1}), ReduceOp::SUM, group);  // the group is as good as before
}

RANKS_TEST(DdpConstruction, NamesTheParameterThatDiffersAndBothShapesOnEveryRank, Ranks(2, 3, 4)) {
  const int odd = size() - 1;
  const std::string on_odd = " on rank " + std::to_string(odd);
  const std::int64_t rows = rank() == odd ? 128 : 120;
  expect_mismatch({{"fc1.bias", weight({5})}, {"fc1.weight", weight({rows, 784})}}, world(),
                  "parameter \"fc1.weight\" is [120, 784] float32 on rank 0 but [128, 784] float32" + on_odd);
  const auto type = rank() == odd ? at::kDouble : at::kFloat;
  expect_mismatch({{"w", weight({5}, type)}}, world(),
                  "parameter \"w\" is [5] float32 on rank 0 but [5] float64" + on_odd);
  const auto format = rank() == odd ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
  expect_mismatch(
      {{"w", torch::ones({2, 3, 4, 4}).contiguous(format).requires_grad_()}}, world(),
      "parameter \"w\" is [2, 3, 4, 4] float32 with strides [48, 1, 12, 3] on rank 0 but [2, 3, 4, 4] "
      "float32" +
          on_odd);
  const std::string name = rank() == odd ? "b" : "a";
  expect_mismatch(
      {{name, weight({5})}}, world(),
      "rank 0 has parameter \"a\" [5] float32 where rank " + std::to_string(odd) + " has parameter \"b\"");
  NamedTensors several = {{"a", weight({1})}, {"b", weight({2})}};
  if (rank() == odd) several.pop_back();
  expect_mismatch(several, world(), "(2 parameters on rank 0, 1" + on_odd + ")");
}

RANKS_TEST(DdpConstruction, NoticesDifferentOptions, Ranks(2, 3)) {
  expect_mismatch({{"w", weight({5})}}, world(), "find_unused_parameters 0",
                  {.find_unused_parameters = rank() == 1});
  expect_mismatch({{"w", weight({5})}}, world(), "bucket_cap 26214400 bytes", {.bucket_cap_mb = 25 + rank()});
}

RANKS_TEST(DdpConstruction, RefusesAModelWithoutTrainableParametersOnEveryRank, Ranks(1, 2)) {
  EXPECT_THAT(
      [&] {
        DistributedDataParallel(NamedTensors{{"w", torch::ones({1})}}, {}, {.process_group = world()});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("no parameter that requires a gradient")));
  all_reduce(torch::ones({1}), ReduceOp::SUM, world());
}

RANKS_TEST(DdpConstruction, GivesEveryRankRankZerosTensorsWhateverTheirSizeDtypeAndStrides, Ranks(1, 2, 3)) {
  torch::manual_seed(rank());
  const auto random = [](std::vector<std::int64_t> shape, at::ScalarType type = at::kFloat) {
    return torch::randn(shape, torch::TensorOptions(type)).requires_grad_();
  };
  torch::Tensor frozen_channels_last = torch::randn({4, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  NamedTensors parameters = {{"large", random({700, 800})},    {"scalar", random({})},
                             {"empty", random({0, 3})},        {"double", random({3, 3}, at::kDouble)},
                             {"half", random({5}, at::kHalf)}, {"frozen", frozen_channels_last}};
  NamedTensors buffers = {{"flags", torch::rand({9}) > 0.5}, {"count", torch::randint(1000, {}, at::kLong)}};
  DistributedDataParallel ddp(parameters, buffers, {.process_group = world()});
  torch::manual_seed(0);  // rank 0's random numbers again, in the same order
  torch::Tensor expected_frozen = torch::randn({4, 3, 5, 5});
  const auto expect = [&](const torch::Tensor& tensor, const torch::Tensor& expected, const char* name) {
    EXPECT_TRUE(torch::equal(tensor, expected)) << name;
  };
  expect(frozen_channels_last, expected_frozen, "frozen");
  EXPECT_TRUE(frozen_channels_last.is_contiguous(at::MemoryFormat::ChannelsLast));
  expect(parameters[0].second, torch::randn({700, 800}), "large");
  expect(parameters[1].second, torch::randn({}), "scalar");
  torch::randn({0, 3});
  expect(parameters[3].second, torch::randn({3, 3}, at::kDouble), "double");
  expect(parameters[4].second, torch::randn({5}, at::kHalf), "half");
  expect(buffers[0].second, torch::rand({9}) > 0.5, "flags");
  expect(buffers[1].second, torch::randint(1000, {}, at::kLong), "count");
}

// -----------------------------------------------------------------------------------------------------------
// backward

RANKS_TEST(DdpFailure, AParameterWithoutGradientIsNamedOnEveryRankByThatBackward, Ranks(1, 2, 3, 4)) {
  const torch::Tensor used = weight({3});
  const torch::Tensor idle = weight({3});
  DistributedDataParallel ddp(NamedTensors{{"used", used}, {"head.idle", idle}}, {},
                              {.process_group = world(), .bucket_cap_mb = 1e-6});
  auto loss = ddp.forward([&] { return (used * 2).sum(); });
  const auto names_it = HasSubstr("parameter \"head.idle\" got no gradient");
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<InvalidArgument>(names_it));
  EXPECT_THAT([&] { ddp.forward([&] { return used; }); }, ThrowsMessage<InvalidArgument>(names_it));
}

RANKS_TEST(DdpFailure, PeersOfTheRankThatForgotAParameterLearnItsNameAndRank, Ranks(2, 3, 4)) {
  const torch::Tensor first = weight({3});
  const torch::Tensor last = weight({3});
  DistributedDataParallel ddp(NamedTensors{{"first", first}, {"last", last}}, {},
                              {.process_group = world(), .bucket_cap_mb = 1e-6});
  const int forgetful = size() - 1;
  const auto step = [&](bool forget) {
    ddp.forward([&] { return forget ? last.sum() : (first * last).sum(); }).backward();
  };
  const auto words = AllOf(HasSubstr("rank " + std::to_string(forgetful) + " of " + std::to_string(size())),
                           HasSubstr("parameter \"first\" got no gradient"));
  if (rank() == forgetful) {
    EXPECT_THAT([&] { step(true); }, ThrowsMessage<InvalidArgument>(words));
  } else {  // at the next collective at the latest
    const auto two_steps = [&] {
      step(false);
      step(false);
    };
    EXPECT_THAT(two_steps, ThrowsMessage<Aborted>(words));
    EXPECT_THAT([&] { ddp.forward([&] { return first; }); }, ThrowsMessage<Aborted>(words));
  }
}

RANKS_TEST(DdpFailure, ADeathInTheMiddleOfBackwardLeavesBackwardAsPeerLost, Ranks(3), Dies({1})) {
  const torch::Tensor first = weight({3});
  const torch::Tensor last = weight({3});
  DistributedDataParallel ddp(NamedTensors{{"first", first}, {"last", last}}, {},
                              {.process_group = world(), .bucket_cap_mb = 1e-6});
  const auto step = [&] { ddp.forward([&] { return ((first * 1) * last).sum(); }).backward(); };
  step();
  if (rank() == 1) {
    first.register_hook([](const torch::Tensor&) { die(); });  // the bucket of "last" has been started
    step();
  }
  try {
    step();
    FAIL() << "backward() did not throw";
  } catch (const PeerLost& lost) {
    EXPECT_EQ(lost.peer(), 1);
    EXPECT_THAT(lost.what(), HasSubstr("all_reduce"));
  }
  EXPECT_THROW(ddp.forward([&] { return first; }), PeerLost);
}

RANKS_TEST(DdpFailure, ARankThatSkippedItsBackwardIsMetByAMismatchInForward, Ranks(2)) {
  const torch::Tensor w = weight({3});
  const torch::Tensor mean = torch::zeros({2});
  DistributedDataParallel ddp(NamedTensors{{"w", w}}, NamedTensors{{"mean", mean}},
                              {.process_group = world()});
  auto loss = ddp.forward([&] { return w.sum(); });
  const auto next = [&] {
    if (rank() == 0) loss.backward();
    ddp.forward([&] { return w.sum(); });
  };
  EXPECT_THAT(next, ThrowsMessage<Mismatch>(AllOf(HasSubstr("all_reduce"), HasSubstr("broadcast"))));
}

}  // namespace
}  // namespace lockstep
