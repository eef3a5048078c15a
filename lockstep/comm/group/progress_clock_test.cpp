#include "lockstep/comm/group/progress_clock.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using Verdict = ProgressClock::Verdict;
using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;

ProgressClock::Time at(int second) { return ProgressClock::Time(seconds(second)); }

TEST(ProgressClock, StartsAtTheFirstLook) {
  ProgressClock clock(seconds(10), seconds(5));
  EXPECT_EQ(clock.look(at(100), 7), Verdict::GO_ON);
  EXPECT_EQ(clock.look(at(104), 7), Verdict::GO_ON);
  EXPECT_EQ(clock.waited(at(104)), seconds(4));
  EXPECT_EQ(clock.next(), at(105));
}

TEST(ProgressClock, WarnsOnceInEveryPeriodAndThenTimesOut) {
  ProgressClock clock(seconds(12), seconds(5));
  std::vector<Verdict> verdicts;
  for (int second = 0; second <= 13; ++second) verdicts.push_back(clock.look(at(second), 0));
  std::vector<Verdict> expected(14, Verdict::GO_ON);
  expected[5] = expected[10] = Verdict::WARN;
  expected[12] = expected[13] = Verdict::TIMEOUT;
  EXPECT_EQ(verdicts, expected);
}

TEST(ProgressClock, EveryProgressStartsItAnew) {
  ProgressClock clock(seconds(3), seconds(2));
  for (int second = 0; second < 100; second += 2)
    EXPECT_EQ(clock.look(at(second), static_cast<std::uint64_t>(second)), Verdict::GO_ON) << second;
  EXPECT_EQ(clock.look(at(101), 98), Verdict::TIMEOUT);
}

TEST(ProgressClock, TimesWithoutAnEndDoNotOverflow) {
  ProgressClock clock(nanoseconds::max(), nanoseconds::max());
  EXPECT_EQ(clock.look(at(0), 0), Verdict::GO_ON);
  EXPECT_EQ(clock.look(ProgressClock::Time(hours(24 * 365)), 0), Verdict::GO_ON);
  EXPECT_GT(clock.next(), at(0));
}

}  // namespace
}  // namespace lockstep
