#include "lockstep/comm/collectives/monitored_barrier.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/barrier.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RANKS_TEST(MonitoredBarrier, LetsEverybodyThroughTogether, Ranks(1, 2, 3, 4), EveryBackend(),
           Except("nccl")) {
  for (int round = 0; round < 20; ++round) comm::monitored_barrier(world(), std::chrono::seconds(30));
  comm::barrier(world());  // the monitored barrier leaves nothing that would disturb a later call
}

RANKS_TEST(MonitoredBarrier, NamesEverybodyWhoDidNotCome, Ranks(4), BackendsWithPeers()) {
  const auto call = [&] { comm::monitored_barrier(world(), milliseconds(300)); };
  const auto names_both = HasSubstr("ranks 1, 3 did not come within 300 ms");
  if (rank() == 0) {
    EXPECT_THAT(call, ThrowsMessage<Timeout>(AllOf(HasSubstr("rank 0 of 4"), names_both)));
  } else if (rank() == 2) {
    EXPECT_THAT(call, ThrowsMessage<Aborted>(names_both));
  } else {  // until the other ranks have given up
    EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<Aborted>(names_both));
  }
}

RANKS_TEST(MonitoredBarrier, NamesTheFirstOnRequest, Ranks(3), Backends("shm")) {
  const auto call = [&] { comm::monitored_barrier(world(), milliseconds(300), /*wait_all_ranks=*/false); };
  if (rank() == 0) {
    EXPECT_THAT(call, ThrowsMessage<Timeout>(HasSubstr("rank 1 did not come")));
  } else {
    EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<Aborted>(HasSubstr("rank 1 did not come")));
  }
}

RANKS_TEST(MonitoredBarrier, RefusesATimeoutThatIsNone, Ranks(1, 2), EveryBackend()) {
  EXPECT_THAT([&] { comm::monitored_barrier(world(), milliseconds(0)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("must be positive")));
  comm::barrier(world());
}

}  // namespace
}  // namespace lockstep
