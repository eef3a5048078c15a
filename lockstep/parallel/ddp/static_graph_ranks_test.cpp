// static_graph on several ranks, each with a graph of its own.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"
#include "testing/reentrant_checkpoint.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Model {
  std::vector<torch::Tensor> w;
  NamedTensors named;
  DistributedDataParallel<void> ddp;
  explicit Model(const ProcessGroup& group)
      : named(make(w)),
        ddp(named, {}, {.process_group = group, .bucket_cap_mb = 1e-6, .static_graph = true}) {}
  static NamedTensors make(std::vector<torch::Tensor>& w) {
    NamedTensors named;
    for (int i = 0; i < 6; ++i) {
      w.push_back(torch::ones({1}, torch::requires_grad()));
      named.emplace_back("w" + std::to_string(i), w.back());
    }
    return named;
  }
  void forget_gradients() const {
    for (const auto& each : w) each.mutable_grad().reset();
  }
};

RANKS_TEST(StaticGraphRanks, UnusedParametersContributeZerosAndNoRanksUseLeavesThemAlone, Ranks(1, 2, 3, 4),
           EveryBackend()) {
  Model model(world());
  for (int step = 0; step < 4; ++step) {
    model.forget_gradients();
    model.w[4].mutable_grad() = torch::full({1}, 42.0);
    model.ddp.forward([&] { return model.w[rank()] * 3; }).backward();  // none uses w4 and w5
    for (int i = 0; i < size(); ++i) EXPECT_FLOAT_EQ(model.w[i].grad().item<float>(), 3.0F / size());
    for (int i = size(); i < 4; ++i) EXPECT_FALSE(model.w[i].grad().defined());
    EXPECT_EQ(model.w[4].grad().item<float>(), 42);
    EXPECT_FALSE(model.w[5].grad().defined());
  }
}

RANKS_TEST(StaticGraphRanks, EachMayRepeatAParameterAsOftenAsItAlwaysDoes, Ranks(1, 2, 3, 4)) {
  Model model(world());
  const auto shared = [&](const torch::Tensor& x) {
    return testing::reentrant_checkpoint([&](const torch::Tensor& in) { return in + model.w[0]; }, x);
  };
  for (int step = 0; step < 4; ++step) {
    model.forget_gradients();
    const auto output = model.ddp.forward([&] {
      torch::Tensor y = model.w[1] * 1;
      for (int i = 0; i <= rank(); ++i) y = shared(y);  // rank + 1 gradients
      for (int i = 2; i < 6; ++i) y = y * model.w[i];
      return y;
    });
    output.backward();
    EXPECT_FLOAT_EQ(model.w[0].grad().item<float>(), (size() + 1) / 2.0F);
    EXPECT_FLOAT_EQ(model.w[1].grad().item<float>(), 1);
    EXPECT_FLOAT_EQ(model.w[5].grad().item<float>(), (size() + 3) / 2.0F);  // the mean of rank + 2
    EXPECT_EQ(model.ddp.stats().reductions, static_cast<std::uint64_t>(step + 1));
  }
  EXPECT_GT(model.ddp.stats().buckets_overlapped, 0u);
}

RANKS_TEST(StaticGraphRanks, PeersOfTheRankWhoseGraphChangedLearnWhat, Ranks(2, 3)) {
  Model model(world());
  const auto step = [&](bool change) {
    model.ddp
        .forward([&] {
          torch::Tensor y = model.w[0] * 1;
          for (int i = 1; i < (change ? 5 : 6); ++i) y = y * model.w[i];
          return y;
        })
        .backward();
  };
  step(false);
  const auto words = AllOf(HasSubstr("rank 1 of"), HasSubstr("parameter \"w5\" got fewer gradients"));
  if (rank() == 1) {
    EXPECT_THAT([&] { step(true); }, ThrowsMessage<InvalidArgument>(words));
  } else {
    const auto two_steps = [&] {
      step(false);
      step(false);
    };
    EXPECT_THAT(two_steps, ThrowsMessage<Aborted>(words));
  }
}

}  // namespace
}  // namespace lockstep
