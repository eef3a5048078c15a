// The loop over virtual ranks without a model: whose turn it is, random numbers, loaders, what is refused.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/job/job.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/parallel/virtual_ranks/rank_seed.h"
#include "lockstep/parallel/virtual_ranks/virtual_rank_states.h"
#include "lockstep/parallel/virtual_ranks/virtual_ranks.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

// Item i is i.
struct Numbers {
  std::int64_t count;
  std::int64_t size() const { return count; }
  std::vector<std::int64_t> get_batch(std::span<const std::int64_t> indices) const {
    return {indices.begin(), indices.end()};
  }
};

RANKS_TEST(VirtualRanksLoop, HasOneTurnWithoutVirtualRanks, Ranks(1, 2, 3)) {
  torch::manual_seed(3);
  const at::Tensor expected = torch::randn({4});
  torch::manual_seed(3);
  std::vector<int> turns;
  for (const int v : virtual_ranks()) {
    turns.push_back(v);
    EXPECT_TRUE(torch::randn({4}).equal(expected));  // the process's own numbers
    for (const int inner : virtual_ranks()) EXPECT_EQ(inner, rank());
  }
  EXPECT_THAT(turns, ElementsAre(rank()));
  EXPECT_THAT(virtual_rank_states(), IsEmpty());
}

RANKS_TEST(VirtualRanksLoop, TakesTurnsInOrder, Ranks(1, 2, 3, 4), Variable("LOCKSTEP_VIRTUAL_RANKS", "5")) {
  seed_virtual_ranks(1);
  std::vector<int> turns;
  for (const int v : virtual_ranks()) {
    turns.push_back(v);
    EXPECT_EQ(get_virtual_rank(), v);
  }
  EXPECT_EQ(turns, local_virtual_ranks());
  EXPECT_EQ(current_virtual_rank(), std::nullopt);
}

RANKS_TEST(VirtualRanksLoop, EachHasItsRandomNumbers, Ranks(1, 2, 3, 4),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(42);
  torch::manual_seed(rank());  // of the process, outside of turns
  for (int round = 0; round < 3; ++round) {
    for (const int v : virtual_ranks()) {
      const at::Tensor drawn = torch::randn({3});
      const auto alone = at::detail::createCPUGenerator(rank_seed(42, v));
      at::Tensor expected;
      for (int i = 0; i <= round; ++i) expected = at::randn({3}, alone, at::TensorOptions(at::kFloat));
      EXPECT_TRUE(drawn.equal(expected)) << v << " in round " << round;
    }
    torch::rand({1});  // does not show in theirs
  }
}

RANKS_TEST(VirtualRanksLoop, SeedingGivesAllProcessesTheSameNumbersOutsideOfTurns, Ranks(1, 2, 3, 4),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  torch::manual_seed(1000 + rank());
  seed_virtual_ranks(42);
  const auto alone = at::detail::createCPUGenerator(42);
  EXPECT_TRUE(torch::randn({3}).equal(at::randn({3}, alone, at::TensorOptions(at::kFloat))));
}

RANKS_TEST(VirtualRanksLoop, RefusesProcessesThatBeginDifferently, Ranks(2, 3),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  torch::manual_seed(rank() == 1 ? 1 : 0);
  EXPECT_THAT(
      [] { virtual_ranks().begin(); },
      ThrowsMessage<Mismatch>(HasSubstr("processes 0 and 1 would begin with different random numbers")));
  seed_virtual_ranks(rank() == 1 ? 1 : 0);
  EXPECT_THAT([] { virtual_ranks().begin(); },
              ThrowsMessage<Mismatch>(HasSubstr("call seed_virtual_ranks(seed) on all")));
  seed_virtual_ranks(5);
  at::set_num_threads(rank() == 1 ? 2 : 1);
  EXPECT_THAT([] { virtual_ranks().begin(); },
              ThrowsMessage<Mismatch>(HasSubstr("process 0 computes with 1 threads, process 1 with 2")));
}

RANKS_TEST(VirtualRanksLoop, RefusesALoopWithinALoop, Ranks(1, 2), Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  for (const int v : virtual_ranks()) {
    EXPECT_THAT([] { virtual_ranks().begin(); },
                ThrowsMessage<InvalidArgument>(HasSubstr("within a loop over virtual_ranks()")));
    EXPECT_THAT(
        [] { seed_virtual_ranks(1); },
        ThrowsMessage<InvalidArgument>(HasSubstr("in the turn of virtual rank " + std::to_string(v))));
    EXPECT_THAT([] { virtual_rank_states(); }, ThrowsMessage<InvalidArgument>(HasSubstr("not within one")));
  }
}

RANKS_TEST(VirtualRanksLoop, MayBeLeft, Ranks(1, 2), Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  const at::Tensor outside = [] {
    torch::manual_seed(8);
    return torch::randn({2});
  }();
  torch::manual_seed(8);
  for (const int v : virtual_ranks()) {
    torch::randn({5});
    if (v >= 0) break;
  }
  EXPECT_EQ(current_virtual_rank(), std::nullopt);
  EXPECT_TRUE(torch::randn({2}).equal(outside));
  std::vector<int> turns;
  for (const int v : virtual_ranks()) turns.push_back(v);
  EXPECT_EQ(turns, local_virtual_ranks());
}

// What virtual rank v gets is what rank v of a job of V gets.
RANKS_TEST(VirtualSteps, GiveEachVirtualRankItsBatches, Ranks(1, 2, 3, 4),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  DistributedSampler sampler(50);  // 13 for each of 4: batches of 5, 5 and 3
  auto loader = make_data_loader(Numbers{50}, sampler, {.batch_size = 5, .workers = rank()});
  EXPECT_EQ(loader.size(), static_cast<std::int64_t>(3 * local_virtual_ranks().size()));
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    std::map<int, std::vector<std::int64_t>> seen;
    std::int64_t steps = 0;
    for (auto& step : virtual_steps(loader)) {
      for (const auto& batch : step) {
        auto& mine = seen[get_virtual_rank()];
        mine.insert(mine.end(), batch.begin(), batch.end());
      }
      ++steps;
      EXPECT_EQ(sampler.state().position, std::min<std::int64_t>(5 * steps, 13));  // in every process
    }
    EXPECT_EQ(steps, 3);
    for (const int v : local_virtual_ranks()) {
      DistributedSampler alone(50, {.num_replicas = 4, .rank = v});
      alone.set_epoch(epoch);
      EXPECT_EQ(seen[v], alone.indices()) << v;
    }
  }
}

RANKS_TEST(VirtualSteps, GoOnAfterAStepThatIsLeft, Ranks(1, 2), Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  DistributedSampler sampler(40, {.shuffle = false});
  auto loader = make_data_loader(Numbers{40}, sampler, {.batch_size = 5, .workers = 0});
  int steps = 0;
  for (auto& step : virtual_steps(loader)) {
    ++steps;
    for (const auto& batch : step) {
      const int v = get_virtual_rank();
      EXPECT_EQ(batch.front(), (steps - 1) * 20 + v);
      if (steps == 1) break;
    }
  }
  EXPECT_EQ(steps, 2);
}

RANKS_TEST(VirtualSteps, RefuseALoaderOfOneRank, Ranks(1, 2), Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  DistributedSampler sampler(40, {.num_replicas = size(), .rank = rank()});
  auto loader = make_data_loader(Numbers{40}, sampler, {.batch_size = 5});
  EXPECT_THAT([&] { virtual_steps(loader); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the loader has batches for 1 of the")));
  EXPECT_THAT([&] { DistributedSampler(40, {.num_replicas = size()}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("this job has 4 virtual ranks")));
}

RANKS_TEST(VirtualSteps, AreThoseOfTheLoaderWithoutVirtualRanks, Ranks(1, 2, 3)) {
  DistributedSampler sampler(30);
  auto loader = make_data_loader(Numbers{30}, sampler, {.batch_size = 4});
  std::vector<std::int64_t> seen;
  for (auto& step : virtual_steps(loader)) {
    for (const auto& batch : step) seen.insert(seen.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(seen, sampler.indices());
}

// libtorch's loader asks the sampler for indices, one batch after the other.
RANKS_TEST(VirtualSteps, TakeBatchesOfLibtorchsLoaderInTurn, Ranks(1, 2, 3),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  DistributedSampler sampler(24);
  sampler.reset();
  std::map<int, std::vector<std::int64_t>> seen;
  const std::vector<int> mine = local_virtual_ranks();
  for (std::size_t i = 0;; ++i) {
    const auto batch = sampler.next(4);
    if (!batch) break;
    auto& of = seen[mine[i % mine.size()]];
    of.insert(of.end(), batch->begin(), batch->end());
  }
  for (const int v : mine)
    EXPECT_EQ(seen[v], DistributedSampler(24, {.num_replicas = 4, .rank = v}).indices()) << v;
}

RANKS_TEST(VirtualRankStates, CarryRandomNumbersOn, Ranks(1, 2, 3), Variable("LOCKSTEP_VIRTUAL_RANKS", "4"),
           WithoutGroup()) {
  init_process_group();
  seed_virtual_ranks(9);
  for (const int v : virtual_ranks()) torch::randn({v + 1});
  const auto states = virtual_rank_states();
  ASSERT_EQ(states.size(), local_virtual_ranks().size());
  std::map<int, at::Tensor> expected;
  for (const int v : virtual_ranks()) expected[v] = torch::randn({5});
  destroy_process_group();
  init_process_group();
  load_virtual_rank_states(states);
  for (const int v : virtual_ranks()) EXPECT_TRUE(torch::randn({5}).equal(expected[v])) << v;
  EXPECT_THAT([] { load_virtual_rank_states({}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("none of the 0 states is its own")));
  auto strange = states;
  strange[0].tensors.emplace_back("model.0.bn.running_mean", torch::ones({2}));
  EXPECT_THAT([&] { load_virtual_rank_states(strange); },
              ThrowsMessage<InvalidArgument>(HasSubstr("tensors that no model here has")));
}

}  // namespace
}  // namespace lockstep
