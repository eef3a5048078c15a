// A job that is paused longer than its timeout goes on afterwards; a rank that is stopped alone is late for
// the others.
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/pauser.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using harness::compute_over_a_pause;
using harness::Pauser;
using harness::pids_of;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds TIMEOUT{4};
constexpr seconds PAUSE{5};

// Rank 1 computes; rank 0 waits for a message from it, and all others wait in a barrier.
RANKS_TEST(Pause, OfAllRanksDoesNotCount, Ranks(2, 3), EveryBackend()) {
  const std::vector<int> pids = pids_of(world());
  std::optional<Pauser> pauser;
  if (rank() == 0) pauser.emplace(pids, PAUSE);
  int word = rank() == 1 ? 7 : 0;
  if (rank() == 1) {
    compute_over_a_pause(milliseconds(300));
    comm::isend(world(), std::span<const int>(&word, 1), 0).wait(TIMEOUT);
  } else if (rank() == 0) {
    comm::irecv(world(), std::span(&word, 1), 1).wait(TIMEOUT);
    EXPECT_EQ(word, 7);
  }
  comm::barrier(world(), true).wait(TIMEOUT);
  pauser.reset();
}

RANKS_TEST(Pause, OfOneRankAloneIsItsOwn, Ranks(2, 3), BackendsWithPeers(), Except("thread")) {
  const std::vector<int> pids = pids_of(world());
  std::optional<Pauser> pauser;
  if (rank() == 0) pauser.emplace(std::vector<int>{pids[1]}, PAUSE);
  if (rank() == 1) {
    compute_over_a_pause(milliseconds(300));
    EXPECT_THROW(comm::barrier(world(), true).wait(), Error);
  } else {
    EXPECT_THAT([&] { comm::barrier(world(), true).wait(TIMEOUT); },
                ::testing::ThrowsMessage<Timeout>(HasSubstr("waiting for rank 1")));
  }
  pauser.reset();
}

}  // namespace
}  // namespace lockstep
