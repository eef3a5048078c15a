#include "lockstep/parallel/ddp/step_times.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

StepClock::Time at(int milliseconds) {
  return StepClock::Time() + std::chrono::hours(1) + std::chrono::milliseconds(milliseconds);
}

// One step of two passes, the first of which averages nothing.
TEST(StepClock, AddsUpThePassesOfAStep) {
  StepClock clock;
  clock.forward_begins(at(0));
  clock.forward_ended(at(10));
  clock.backward_ended(at(30));
  clock.forward_begins(at(32));
  clock.forward_ended(at(45));
  clock.starting(at(50), at(51));
  clock.starting(at(60), at(63));
  clock.backward_ended(at(70));
  clock.starting(at(71), at(72));
  clock.averaged(at(78));
  const StepTimes step = clock.last();
  EXPECT_DOUBLE_EQ(step.between, 0.002);
  EXPECT_DOUBLE_EQ(step.forward, 0.023);
  EXPECT_DOUBLE_EQ(step.backward, 0.045);
  EXPECT_DOUBLE_EQ(step.communication, 0.028);
  EXPECT_DOUBLE_EQ(step.waited, 0.008);
  EXPECT_DOUBLE_EQ(step.exposed, 0.001 + 0.003 + 0.008);
}

TEST(StepClock, BeginsEachStepAnew) {
  StepClock clock;
  for (int step = 0; step < 3; ++step) {
    const int begin = step * 100;
    clock.forward_begins(at(begin + 7));
    clock.forward_ended(at(begin + 20));
    clock.backward_ended(at(begin + 50));
    clock.starting(at(begin + 50), at(begin + 55));
    clock.averaged(at(begin + 60));
  }
  EXPECT_DOUBLE_EQ(clock.last().between, 0.047);
  EXPECT_DOUBLE_EQ(clock.last().forward, 0.013);
  EXPECT_DOUBLE_EQ(clock.last().exposed, 0.010);
  EXPECT_DOUBLE_EQ(clock.last().communication, 0.010);
}

TEST(RankTimes, NameTheRankThatCameLastAndItsPhase) {
  const StepTimes usual = {.between = 0.001,
                           .forward = 0.01,
                           .backward = 0.02,
                           .communication = 0.03,
                           .exposed = 0.02,
                           .waited = 0.018};
  StepTimes slow = usual;
  slow.forward = 0.025;
  slow.waited = 0.003;
  EXPECT_EQ(to_string(RankTimes{{usual, slow, usual}}),
            "rank    between    forward   backward   communication (exposed)   arrived\n"
            "   0     1.0 ms    10.0 ms    20.0 ms         30.0 ms (20.0 ms)   first\n"
            "   1     1.0 ms    25.0 ms    20.0 ms         30.0 ms (20.0 ms)   15.0 ms later\n"
            "   2     1.0 ms    10.0 ms    20.0 ms         30.0 ms (20.0 ms)   first\n"
            "rank 1 came last, 15.0 ms after rank 0; its forward took 25.0 ms, that of the others 10.0 ms\n");
  EXPECT_EQ((RankTimes{{slow, usual}}).last_to_arrive(), 0u);
  EXPECT_DOUBLE_EQ((RankTimes{{slow, usual}}).lag(0), 0.015);
}

}  // namespace
}  // namespace lockstep
