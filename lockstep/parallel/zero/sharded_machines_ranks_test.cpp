// ShardedDataParallel on several machines with equally many ranks each: a copy of the parameters for each
// machine. The harness has ranks 2 and 3 on a second one.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/point_to_point.h"
#include "lockstep/job/groups.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/machine_groups.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace machines {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int WIDTH = 300;  // a weight of more than one chunk of the optimisers

std::shared_ptr<torch::nn::LinearImpl> make_layer() {
  torch::manual_seed(1);
  return std::make_shared<torch::nn::LinearImpl>(WIDTH, WIDTH);
}

RANKS_TEST(MachineGroups, AreMachinesAndLanes, Ranks(4), Backends("hierarchical")) {
  const auto groups = MachineGroups::make(world());
  ASSERT_NE(groups, nullptr);
  EXPECT_THAT(groups->here(), ElementsAre(rank() / 2 * 2, rank() / 2 * 2 + 1));
  EXPECT_THAT(groups->in_lane(), ElementsAre(rank() % 2, rank() % 2 + 2));
  EXPECT_EQ(groups->machine().ranks(), groups->here());
  EXPECT_EQ(groups->lane().ranks(), groups->in_lane());
  EXPECT_EQ(groups->machine().backend_name(), "shm");
}

RANKS_TEST(MachineGroups, AreNoneOfUnequalMachinesOrOfOne, Ranks(2, 3),
           Backends("shm", "tcp", "hierarchical")) {
  EXPECT_EQ(MachineGroups::make(world()), nullptr);
}

RANKS_TEST(MachineGroups, EndTogether, Ranks(4), Backends("hierarchical")) {
  const auto groups = MachineGroups::make(world());
  int here = 1;
  if (rank() != 3) comm::send(world(), std::span<const int>(&here, 1), GroupRank{3});
  if (rank() == 3) {
    for (const int other : {0, 1, 2}) comm::recv(world(), std::span(&here, 1), GroupRank{other});
    groups->abort(std::make_exception_ptr(Timeout("too late")));
    return;
  }
  for (const ProcessGroup& group : {groups->lane(), groups->machine(), world()}) {
    if (group.size() == 2 && group.ranks().back() != 3) continue;  // without rank 3
    EXPECT_THAT([&] { comm::barrier(group).wait(); }, ThrowsMessage<Timeout>(HasSubstr("too late")));
  }
}

// What one rank writes is there for the other of its machine, and for no other.
RANKS_TEST(ShardedMachines, HaveOneCopyEach, Ranks(4), Backends("hierarchical")) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  EXPECT_TRUE(model.memory().is_shared);
  auto* const first = net->weight.mutable_data_ptr<float>();
  if (rank() % 2 == 0) *first = static_cast<float>(100 + rank());
  comm::barrier(world()).wait();
  EXPECT_EQ(*first, static_cast<float>(100 + rank() / 2 * 2));
}

enum class Torn { NOWHERE, WHERE_THE_DEAD_WAS };

// The other machine may be told in the step after, if the dead had given it all it had.
void expect_death_in_the_second_step(Torn torn, int rank) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  const auto step = [&] {
    model.forward(at::ones({2, WIDTH})).sum().backward();
    optimizer.step();
  };
  step();
  const at::Tensor before = net->weight.detach().clone();
  EXPECT_THAT(
      [&] {
        step();
        step();
      },
      ThrowsMessage<PeerLost>(HasSubstr("rank 3")));
  if (torn == Torn::NOWHERE) {
    EXPECT_FALSE(model.is_torn());
    EXPECT_TRUE(net->weight.equal(before));
  } else if (rank == 2) {
    EXPECT_TRUE(model.is_torn());
  }
}

RANKS_TEST(ShardedMachines, ADeathBeforeAStepLeavesAllCopiesWhole, Ranks(4), Dies({3}),
           Backends("hierarchical"), Variable("LOCKSTEP_FAIL_POINT", "zero.before_meeting@3+1=kill")) {
  expect_death_in_the_second_step(Torn::NOWHERE, rank());
}
RANKS_TEST(ShardedMachines, ADeathInAStepIsNamedOnAllMachines, Ranks(4), Dies({3}), Backends("hierarchical"),
           Variable("LOCKSTEP_FAIL_POINT", "zero.stepping@3+1=kill")) {
  expect_death_in_the_second_step(Torn::WHERE_THE_DEAD_WAS, rank());
}
RANKS_TEST(ShardedMachines, ADeathBetweenMachinesIsNamedOnAllOfThem, Ranks(4), Dies({3}),
           Backends("hierarchical"), Variable("LOCKSTEP_FAIL_POINT", "zero.collecting@3+1=kill")) {
  expect_death_in_the_second_step(Torn::WHERE_THE_DEAD_WAS, rank());
}

}  // namespace
}  // namespace machines
}  // namespace lockstep
