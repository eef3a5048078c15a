#include "lockstep/parallel/replicas/turn_buffers.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/job/virtual_rank_plan.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Four virtual ranks, whose forward adds v + 1 to one buffer.
struct Turns {
  Turns(const ProcessGroup& group, bool broadcast)
      : share(virtual_rank_plan(4, group.size()).shares[static_cast<std::size_t>(group.rank())]),
        buffers({buffer}, group, ranks(), broadcast) {}
  std::vector<int> ranks() const {
    std::vector<int> all;
    for (int v = share.first; v <= share.last(); ++v) all.push_back(v);
    return all;
  }
  void forward(int v) {
    buffers.before_forward();
    buffer.add_(v + 1);
  }
  void run_round(int forwards = 1) {
    buffers.begin_round();
    for (const int v : ranks()) {
      buffers.begin_turn(v);
      for (int i = 0; i < forwards; ++i) forward(v);
      buffers.end_turn(v);
    }
    buffers.end_round();
  }
  double of(int v) const { return buffers.state(v)[0].item<double>(); }

  at::Tensor buffer = torch::zeros({}, torch::kDouble);
  VirtualShare share;
  TurnBuffers buffers;
};

RANKS_TEST(TurnBuffers, BeginEachForwardWithThoseOfVirtualRankZero, Ranks(1, 2, 3, 4)) {
  Turns turns(world(), true);
  for (int round = 0; round < 3; ++round) {
    turns.run_round(2);
    // Virtual rank 0 has added 1 twice a round. Before its last forward it had 2 * round + 1.
    for (const int v : turns.ranks()) EXPECT_EQ(turns.of(v), 2 * round + 1 + (v + 1)) << v;
    EXPECT_EQ(turns.buffer.item<double>(), turns.of(turns.share.first));
  }
}

RANKS_TEST(TurnBuffers, AreEachVirtualRanksOwnWithoutABroadcast, Ranks(1, 2, 3, 4)) {
  Turns turns(world(), false);
  for (int round = 0; round < 3; ++round) turns.run_round();
  for (const int v : turns.ranks()) EXPECT_EQ(turns.of(v), 3 * (v + 1)) << v;
  turns.buffer.fill_(10);  // by the program: counts for all
  turns.run_round();
  for (const int v : turns.ranks()) EXPECT_EQ(turns.of(v), 10 + v + 1) << v;
}

RANKS_TEST(TurnBuffers, AreLoadedByVirtualRank, Ranks(1, 2, 3)) {
  Turns turns(world(), false);
  for (const int v : turns.ranks()) turns.buffers.load(v, {torch::full({}, 100.0 * v, torch::kDouble)});
  turns.run_round();
  for (const int v : turns.ranks()) EXPECT_EQ(turns.of(v), 100 * v + v + 1) << v;
}

RANKS_TEST(TurnBuffers, GoOnAfterARoundThatWasLeft, Ranks(1, 2)) {
  Turns turns(world(), false);
  turns.run_round();
  turns.buffers.begin_round();
  turns.buffers.begin_turn(turns.share.first);
  turns.buffers.end_turn(turns.share.first);
  turns.buffers.begin_turn(turns.share.first + 1);
  turns.forward(turns.share.first + 1);
  turns.buffers.end_round();  // in the middle of a turn
  for (const int v : turns.ranks()) EXPECT_EQ(turns.of(v), v + 1) << v;
  turns.run_round();
  for (const int v : turns.ranks()) EXPECT_EQ(turns.of(v), 2 * (v + 1)) << v;
}

RANKS_TEST(TurnBuffers, NeedAsManyForwardsInEachTurn, Ranks(1, 2)) {
  Turns turns(world(), true);
  turns.buffers.begin_round();
  turns.buffers.begin_turn(turns.share.first);
  turns.forward(0);
  turns.buffers.end_turn(turns.share.first);
  turns.buffers.begin_turn(turns.share.first + 1);
  turns.forward(0);
  EXPECT_THAT([&] { turns.buffers.before_forward(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("runs more than the 1 forwards in training")));
}

}  // namespace
}  // namespace lockstep
