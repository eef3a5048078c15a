// Every communication hook keeps its declared bound against the true mean, and sends the bytes it should.
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/gradients/hooks/hook_registry.h"
#include "lockstep/parallel/gradients/hooks/plain_hooks.h"
#include "lockstep/tensor/collectives.h"
#include "testing/hook_trial.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<std::vector<std::int64_t>> SHAPES = {{40, 30}, {17}, {30, 64}, {8, 3, 3, 3}, {1}};

// The bounds of `hook` for what all ranks contributed, against what came out.
void expect_within_bound(const HookErrorBound& bound, const at::Tensor& result, const at::Tensor& mean,
                         const std::vector<at::Tensor>& contributions) {
  double largest_of_all = 0;
  double mean_norm = 0;
  for (const at::Tensor& each : contributions) {
    largest_of_all = std::max(largest_of_all, largest(each));
    mean_norm += each.norm().item<double>() / static_cast<double>(contributions.size());
  }
  const at::Tensor error = result - mean;
  EXPECT_TRUE(std::isfinite(bound.of_largest) || std::isfinite(bound.of_norm)) << "no bound at all";
  EXPECT_LE(largest(error), bound.of_largest * largest_of_all + bound.absolute);
  const double spread = bound.absolute * std::sqrt(static_cast<double>(mean.numel()));
  EXPECT_LE(error.norm().item<double>(), bound.of_norm * mean_norm + spread);
}

void expect_bound_kept(const std::string& name, const ProcessGroup& group, at::ScalarType dtype) {
  HookTrial trial(group, dtype, SHAPES, /*bucket_cap_mb=*/0.004);
  trial.ddp.register_comm_hook(name);
  const at::Tensor result = joined(trial.step(trial.gradients(group.rank(), 0)));
  std::vector<at::Tensor> contributions;
  for (int rank = 0; rank < group.size(); ++rank) contributions.push_back(joined(trial.gradients(rank, 0)));
  expect_within_bound(trial.ddp.comm_hook()->error_bound(dtype, group.size()), result, joined(trial.mean(0)),
                      contributions);
  if (name == "noop") return;
  at::Tensor of_rank_0 = result.clone();  // the same bits everywhere
  broadcast(of_rank_0, GroupRank{0}, group);
  EXPECT_TRUE(of_rank_0.equal(result));
}

RANKS_TEST(CommHooks, KeepTheirBounds, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const std::string& name : comm_hook_names()) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(name + " " + c10::toString(dtype));
      expect_bound_kept(name, world(), dtype);
    }
  }
}

// Elements of the buckets, gaps included.
std::uint64_t elements(const HookTrial& trial) {
  return trial.ddp.stats().bucket_bytes / c10::elementSize(trial.type);
}

RANKS_TEST(CommHooks, SendTheBytesTheyShould, Ranks(2, 3)) {
  const std::vector<std::pair<std::string, std::uint64_t>> bytes_per_element = {
      {"", 4}, {"allreduce", 4}, {"fp16_compress", 2}, {"bf16_compress", 2}, {"noop", 0}};
  for (const auto& [name, bytes] : bytes_per_element) {
    SCOPED_TRACE(name);
    HookTrial trial(world(), at::kFloat, SHAPES);
    if (!name.empty()) trial.ddp.register_comm_hook(name);
    for (int step = 0; step < 3; ++step) {
      trial.step(trial.gradients(rank(), step));
      EXPECT_EQ(trial.ddp.stats().last_step_bytes_sent, bytes * elements(trial));
    }
    EXPECT_EQ(trial.ddp.stats().bytes_sent, 3 * bytes * elements(trial));
  }
}

RANKS_TEST(CommHooks, AllreduceGivesTheBitsOfNoHook, Ranks(1, 2, 3, 4), EveryBackend()) {
  HookTrial plain(world(), at::kFloat, SHAPES);
  HookTrial hooked(world(), at::kFloat, SHAPES);
  hooked.ddp.register_comm_hook("allreduce");
  const auto gradients = plain.gradients(rank(), 7);
  EXPECT_TRUE(joined(plain.step(gradients)).equal(joined(hooked.step(gradients))));
}

// The average of numbers that the type holds is off by one rounding at most, also when their sum would
// overflow it.
RANKS_TEST(CommHooks, Fp16DoesNotOverflowInItsSum, Ranks(2, 3, 4)) {
  HookTrial trial(world(), at::kFloat, {{8}});
  trial.ddp.register_comm_hook("fp16_compress");
  const auto result = trial.step({at::full({8}, 60000.0, at::kFloat)});
  EXPECT_TRUE(result[0].equal(at::full({8}, 60000.0, at::kFloat))) << result[0];
}

RANKS_TEST(CommHooks, NoopLeavesEachRankItsOwn, Ranks(2, 3)) {
  HookTrial trial(world(), at::kFloat, SHAPES);
  trial.ddp.register_comm_hook("noop");
  const auto own = trial.gradients(rank(), 0);
  EXPECT_TRUE(joined(trial.step(own)).equal(joined(own)));
}

// A hook of three steps over several buckets: 2 * mean + rank of the maximum ..., here max over ranks, then
// the sum of that.
RANKS_TEST(CommHooks, AFunctionMayTakeSeveralSteps, Ranks(1, 2, 3, 4), EveryBackend()) {
  HookTrial trial(world(), at::kDouble, {{5}, {6}, {7}}, /*bucket_cap_mb=*/1e-5);
  std::vector<std::size_t> order;
  std::size_t last = 0;
  trial.ddp.register_comm_hook("maximum, then sum", [&](const GradBucket& bucket) -> HookStep {
    order.push_back(bucket.index());
    if (bucket.is_last()) last = bucket.index();
    return {all_reduce(bucket.buffer(), ReduceOp::MAX, bucket.group(), true), [&order, bucket]() -> HookStep {
              order.push_back(10 + bucket.index());
              return all_reduce(bucket.buffer(), ReduceOp::SUM, bucket.group(), true);
            }};
  });
  const auto result = trial.step(
      {at::full({5}, rank(), at::kDouble), at::full({6}, -rank(), at::kDouble), at::ones({7}, at::kDouble)});
  EXPECT_TRUE(result[0].equal(at::full({5}, (size() - 1) * size(), at::kDouble)));
  EXPECT_TRUE(result[1].equal(at::zeros({6}, at::kDouble)));
  EXPECT_TRUE(result[2].equal(at::full({7}, size(), at::kDouble)));
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 10, 11, 12}));
  EXPECT_EQ(last, 2u);
}

// gradients() are views of the buffer with the parameters' shapes, each parameter in one bucket.
RANKS_TEST(CommHooks, SeeTheParametersOfABucket, Ranks(2)) {
  HookTrial trial(world(), at::kFloat, SHAPES, /*bucket_cap_mb=*/0.004);
  const auto own = trial.gradients(rank(), 0);
  std::vector<bool> seen(SHAPES.size(), false);
  trial.ddp.register_comm_hook("looks", [&](const GradBucket& bucket) -> HookStep {
    const auto gradients = bucket.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::size_t index = std::stoul(bucket.parts()[i].name.substr(1));
      seen[index] = true;
      EXPECT_TRUE(bucket.parameters()[i].is_same(trial.weights[index]));
      EXPECT_TRUE(gradients[i].equal(own[index]));
      EXPECT_TRUE(gradients[i].is_alias_of(bucket.buffer()));
    }
    return {};
  });
  trial.step(own);
  EXPECT_EQ(seen, std::vector<bool>(SHAPES.size(), true));
}

RANKS_TEST(CommHooks, AreTheSameOnAllRanks, Ranks(2, 3)) {
  HookTrial trial(world(), at::kFloat, SHAPES);
  EXPECT_THAT([&] { trial.ddp.register_comm_hook(rank() == 1 ? "noop" : "fp16_compress"); },
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("communication hook fp16_compress on rank 0"),
                                            HasSubstr("communication hook noop on rank 1"))));
}

RANKS_TEST(CommHooks, AreRegisteredOnceBeforeTheFirstBackward, Ranks(1, 2)) {
  HookTrial trial(world(), at::kFloat, SHAPES);
  trial.ddp.register_comm_hook("allreduce");
  EXPECT_THAT([&] { trial.ddp.register_comm_hook("allreduce"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("register_comm_hook() was called before")));
  HookTrial late(world(), at::kFloat, SHAPES);
  late.step(late.gradients(rank(), 0));
  EXPECT_THAT([&] { late.ddp.register_comm_hook("allreduce"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("before the first one")));
  EXPECT_THAT([&] { late.ddp.register_comm_hook("zip"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"zip\""), HasSubstr("fp16_compress"))));
  EXPECT_THROW(late.ddp.register_comm_hook(std::shared_ptr<CommHook>()), InvalidArgument);
  EXPECT_THROW(late.ddp.register_comm_hook("empty", FunctionHook::Function()), InvalidArgument);
}

RANKS_TEST(CommHooks, MayThrow, Ranks(1)) {
  HookTrial trial(world(), at::kFloat, SHAPES);
  trial.ddp.register_comm_hook("throws",
                               [](const GradBucket&) -> HookStep { throw std::domain_error("no"); });
  EXPECT_THROW(trial.step(trial.gradients(0, 0)), std::domain_error);
  EXPECT_THROW(trial.step(trial.gradients(0, 1)), std::domain_error);
}

TEST(CommHookRegistry, TakesMore) {
  add_comm_hook("of a test", [] { return std::make_shared<NoopHook>(); });
  EXPECT_EQ(make_comm_hook("of a test")->describe(), "noop");
  EXPECT_THAT([] { add_comm_hook("of a test", [] { return std::make_shared<NoopHook>(); }); },
              ThrowsMessage<InvalidArgument>(HasSubstr("registered already")));
}

}  // namespace
}  // namespace lockstep
