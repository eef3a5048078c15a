#include "lockstep/optim/gradient_accumulation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "lockstep/base/error.h"
#include "testing/fake_backend.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(AccumulationPlace, GroupsAndTheIncompleteLastOfEachEpoch) {
  const auto sizes = [](const GradientAccumulationOptions& options, int numbers) {
    std::string text;
    for (int i = 0; i < numbers; ++i) {
      const AccumulationPlace place = accumulation_place(options, i);
      text += std::to_string(place.index) + "/" + std::to_string(place.size) + " ";
    }
    return text;
  };
  EXPECT_EQ(sizes({.steps = 1}, 3), "0/1 0/1 0/1 ");
  EXPECT_EQ(sizes({.steps = 3}, 7), "0/3 1/3 2/3 0/3 1/3 2/3 0/3 ");
  EXPECT_EQ(sizes({.steps = 4, .micro_batches = 6}, 8), "0/4 1/4 2/4 3/4 0/2 1/2 0/4 1/4 ");
  EXPECT_EQ(sizes({.steps = 4, .micro_batches = 4}, 5), "0/4 1/4 2/4 3/4 0/4 ");
  EXPECT_EQ(sizes({.steps = 4, .micro_batches = 2}, 4), "0/2 1/2 0/2 1/2 ");
}

struct Line {
  at::Tensor w = at::zeros({3, 1}, at::kDouble).requires_grad_();
  at::Tensor losses(const at::Tensor& x) const { return (x.mm(w) - 1).pow(2); }
};

TEST(GradientAccumulation, EqualsOneBatch) {
  const at::Tensor x = at::rand({24, 3}, at::kDouble);
  for (const std::int64_t micros : {4, 3}) {  // three of four: an incomplete group
    Line whole, split;
    whole.losses(x.narrow(0, 0, 6 * micros)).mean().backward();
    GradientAccumulation accumulation({split.w}, {.steps = 4, .micro_batches = micros});
    for (std::int64_t i = 0; i < micros; ++i) {
      EXPECT_EQ(accumulation.pending(), i);
      auto micro = accumulation.next();
      EXPECT_EQ(micro.index(), i);
      EXPECT_EQ(micro.group_size(), micros);
      micro.backward(split.losses(x.narrow(0, 6 * i, 6)).mean());
      EXPECT_EQ(micro.is_last(), i == micros - 1);
    }
    EXPECT_EQ(accumulation.pending(), 0);
    EXPECT_TRUE(at::allclose(split.w.grad(), whole.w.grad(), 1e-14, 1e-15));
  }
}

TEST(GradientAccumulation, EveryTokenCountsTheSame) {
  const at::Tensor x = at::rand({24, 3}, at::kDouble);
  Line whole, split;
  whole.losses(x).mean().backward();
  GradientAccumulation accumulation({split.w}, {.steps = 3});
  std::int64_t first = 0;
  for (const std::int64_t tokens : {5, 0, 19}) {  // of one micro-batch nothing counts
    auto micro = accumulation.next();
    micro.backward(split.losses(x.narrow(0, first, tokens)).sum(), static_cast<double>(tokens));
    first += tokens;
  }
  EXPECT_TRUE(at::allclose(split.w.grad(), whole.w.grad(), 1e-14, 1e-15));
}

TEST(GradientAccumulation, NoTokensAtAllLeaveZeros) {
  Line line;
  GradientAccumulation accumulation({line.w}, {.steps = 1});
  accumulation.next().backward(line.losses(at::zeros({0, 3}, at::kDouble)).sum(), 0);
  EXPECT_TRUE(at::equal(line.w.grad(), at::zeros({3, 1}, at::kDouble)));
}

// What a DistributedDataParallel is to it.
struct Model {
  struct Guard {
    explicit Guard(int& counter) : open(&counter) { ++counter; }
    Guard(Guard&& other) noexcept : open(std::exchange(other.open, nullptr)) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (open != nullptr) --*open;
    }
    int* open;
  };
  Guard no_sync() { return Guard(guards); }
  std::vector<at::Tensor> parameters() const { return {line.w}; }
  ProcessGroup process_group() const { return ProcessGroup(std::make_shared<testing::FakeBackend>(2)); }
  Line line;
  int guards = 0;
};

TEST(GradientAccumulation, NoSyncForAllButTheLast) {
  Model model;
  GradientAccumulation accumulation(model, {.steps = 3});
  std::vector<int> guards;
  for (int i = 0; i < 6; ++i) {
    auto micro = accumulation.next();
    guards.push_back(model.guards);
    micro.backward(model.line.losses(at::ones({2, 3}, at::kDouble)).mean());
  }
  EXPECT_THAT(guards, ElementsAre(1, 1, 0, 1, 1, 0));
  EXPECT_EQ(model.guards, 0);
}

// An epoch of 6 micro-batches in steps of 4, left after the first group: the next has 2.
TEST(GradientAccumulation, GoesOnFromItsState) {
  Line line;
  const GradientAccumulationOptions options = {.steps = 4, .micro_batches = 6};
  GradientAccumulation before({line.w}, options), after({line.w}, options);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(before.next().is_last());
  EXPECT_THROW(before.state_dict(), InvalidArgument);
  EXPECT_TRUE(before.next().is_last());
  after.load_state_dict(before.state_dict());
  EXPECT_EQ(after.next().group_size(), 2);
  EXPECT_TRUE(after.next().is_last());
  EXPECT_THROW(after.load_state_dict({{"begun", at::ones({}, at::kLong).neg()}}), InvalidArgument);
  EXPECT_THROW(after.load_state_dict({}), InvalidArgument);
}

TEST(GradientAccumulation, MistakesAreRefused) {
  Line line;
  EXPECT_THROW(GradientAccumulation({line.w}, {.steps = 0}), InvalidArgument);
  EXPECT_THROW(GradientAccumulation({line.w}, {.steps = 2, .micro_batches = 0}), InvalidArgument);
  GradientAccumulation accumulation({line.w}, {.steps = 2});
  const at::Tensor x = at::ones({2, 3}, at::kDouble);
  auto first = accumulation.next();
  EXPECT_THROW(first.backward(line.losses(x).sum(), -1), InvalidArgument);
  first.backward(line.losses(x).mean());
  const at::Tensor before = line.w.grad().clone();
  EXPECT_THROW(accumulation.next().backward(line.losses(x).sum(), 2), InvalidArgument);
  EXPECT_TRUE(at::equal(line.w.grad(), before));
}

}  // namespace
}  // namespace lockstep
