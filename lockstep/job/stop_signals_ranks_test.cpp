#include "lockstep/job/stop_signals.h"

#include <csignal>

#include "lockstep/base/error.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::sum_of_ranks;

// Not for ranks that are threads, because a process has one set of handlers.
RANKS_TEST(StopSignals, OneRanksSignalIsEveryRanksAnswerAtTheSameStep, Ranks(1, 2, 3, 4), EveryBackend(),
           Except("thread")) {
  for (int asked = 0; asked < size(); ++asked) {
    StopSignals stop({SIGTERM, SIGUSR1}, {.group = world()});
    for (int step = 0; step < 3; ++step) ASSERT_FALSE(stop.requested_on_any_rank()) << step;
    if (rank() == asked) std::raise(SIGUSR1);
    EXPECT_EQ(stop.requested_here().has_value(), rank() == asked);
    for (int step = 3; step < 6; ++step) {
      const auto request = stop.requested_on_any_rank();
      ASSERT_TRUE(request) << step;
      EXPECT_EQ(request->signal, SIGUSR1);
      EXPECT_EQ(request->rank, asked);
    }
  }
}

RANKS_TEST(StopSignals, TheFirstSignalOfTheListAndTheLowestRankCount, Ranks(2, 3, 4)) {
  StopSignals stop({SIGTERM, SIGUSR1}, {.group = world()});
  std::raise(rank() == size() - 1 ? SIGTERM : SIGUSR1);
  const auto first = stop.requested_on_any_rank();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->signal, SIGTERM);
  EXPECT_EQ(first->rank, size() - 1);
  stop.clear();
  const auto second = stop.requested_on_any_rank();
  ASSERT_TRUE(second) << "the other signal was not forgotten";
  EXPECT_EQ(second->signal, SIGUSR1);
  EXPECT_EQ(second->rank, 0);
  stop.clear();
  EXPECT_FALSE(stop.requested_on_any_rank());
}

RANKS_TEST(StopSignals, CommunicatesAtEachKthCallOnly, Ranks(2, 3)) {
  StopSignals stop({SIGTERM}, {.every = 4, .group = world()});
  if (rank() == 0) std::raise(SIGTERM);
  for (int call = 1; call <= 3; ++call) EXPECT_FALSE(stop.requested_on_any_rank()) << call;
  EXPECT_TRUE(stop.requested_on_any_rank());
}

RANKS_TEST(StopSignals, IsTheWorldsWithoutAGroup, Ranks(1, 2, 3), WithoutGroup()) {
  StopSignals stop({SIGTERM});
  if (rank() == 0) std::raise(SIGTERM);
  EXPECT_EQ(stop.requested_on_any_rank().has_value(), rank() == 0) << "nobody else is there yet";
  for (int round = 0; round < 2; ++round) {
    init_process_group();
    EXPECT_TRUE(stop.requested_on_any_rank()) << round;
    stop.clear();
    EXPECT_FALSE(stop.requested_on_any_rank()) << round;
    EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2) << "no rank is a call ahead";
    destroy_process_group();
    if (rank() == size() - 1) std::raise(SIGTERM);
  }
}

RANKS_TEST(StopSignals, LeaveNoHandlerBehind, Ranks(1, 2), WithoutGroup()) {
  const auto before = std::signal(SIGUSR2, SIG_IGN);
  { const StopSignals stop({SIGUSR2}); }
  EXPECT_EQ(std::signal(SIGUSR2, before), SIG_IGN);
}

RANKS_TEST(StopSignals, OfARankThatEndsDoesNotReplaceItsExitCode, Ranks(1, 2, 3)) {
  {
    StopSignals stop({SIGUSR2}, {.group = world()});
    if (rank() == 0) std::raise(SIGUSR2);
    ASSERT_TRUE(stop.requested_on_any_rank());
  }
  std::raise(SIGUSR2);  // the scheduler signals this rank late
  EXPECT_NE(std::signal(SIGUSR2, SIG_DFL), SIG_DFL);
  { const StopSignals stop({SIGUSR2}); }
  EXPECT_EQ(std::signal(SIGUSR2, SIG_DFL), SIG_DFL) << "without a request all is as before";
}

RANKS_TEST(StopSignals, RefusesWhatMeansNothing, Ranks(1, 2)) {
  EXPECT_THROW(StopSignals({}), InvalidArgument);
  EXPECT_THROW(StopSignals({SIGKILL}), InvalidArgument);
  EXPECT_THROW(StopSignals({SIGTERM}, {.every = 0}), InvalidArgument);
  const StopSignals stop({SIGTERM});
  EXPECT_THROW(StopSignals({SIGTERM}), InvalidArgument) << "one at a time";
}

}  // namespace
}  // namespace lockstep
