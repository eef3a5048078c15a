#include "lockstep/comm/collectives/barrier.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RANKS_TEST(Barrier, ReturnsOnEveryRank, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (int i = 0; i < 100; ++i) comm::barrier(world()).wait();
}

RANKS_TEST(Barrier, SurvivorsLearnWhoDied, Ranks(4), Dies({2})) {
  if (rank() == 2) die();
  EXPECT_THAT([&] { comm::barrier(world()).wait(); },
              ThrowsMessage<PeerLost>(AllOf(HasSubstr("rank 2"), HasSubstr("barrier #"))));
}

}  // namespace
}  // namespace lockstep
