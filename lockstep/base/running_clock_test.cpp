#include "lockstep/base/running_clock.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <limits>

#include "lockstep/base/deadline.h"
#include "lockstep/base/naps.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto SLACK = RunningTime::SLACK;

// A clock that only these tests move.
RunningTime::Time at(std::chrono::nanoseconds since_start) {
  return RunningTime::Time(seconds(1000)) + since_start;
}

TEST(RunningTime, CountsASleepThatTookAboutAsLongAsItShould) {
  RunningTime time;
  time.slept(at(seconds(0)), milliseconds(10), at(milliseconds(10)));
  time.slept(at(seconds(1)), milliseconds(10), at(milliseconds(1000 + 3)));  // woken
  time.slept(at(seconds(2)), milliseconds(10),
             at(seconds(2) + 50 * milliseconds(10)));  // an overloaded machine
  time.slept(at(seconds(3)), milliseconds(10), at(seconds(3) + milliseconds(10) + SLACK));
  EXPECT_EQ(time.stopped().count(), 0);
}

TEST(RunningTime, LeavesOutWhatIsBeyondNapAndSlack) {
  RunningTime time;
  time.slept(at(seconds(0)), milliseconds(10), at(std::chrono::hours(8)));
  EXPECT_EQ(time.stopped(), std::chrono::hours(8) - milliseconds(10) - SLACK);
  EXPECT_EQ(time.last_end(), at(std::chrono::hours(8)));
}

TEST(RunningTime, CountsAPauseThatSeveralThreadsSawOnce) {
  RunningTime time;
  time.slept(at(milliseconds(5)), milliseconds(250),
             at(milliseconds(10'000)));  // the one that napped longer sees less
  EXPECT_EQ(time.stopped(), milliseconds(10'000 - 5 - 250) - SLACK);
  time.slept(at(milliseconds(0)), milliseconds(10), at(milliseconds(10'001)));
  EXPECT_EQ(time.stopped(), milliseconds(10'001 - 5 - 250) - SLACK);
  time.slept(at(milliseconds(3)), milliseconds(10),
             at(milliseconds(9'999)));  // comes late with what is known
  EXPECT_EQ(time.stopped(), milliseconds(10'001 - 5 - 250) - SLACK);
}

TEST(RunningTime, AddsUpPauses) {
  RunningTime time;
  time.slept(at(seconds(0)), milliseconds(0), at(seconds(2) + SLACK));
  time.slept(at(seconds(5)), milliseconds(0), at(seconds(8) + SLACK));
  EXPECT_EQ(time.stopped(), seconds(5));
}

// A machine on which every nap takes a minute: a timeout of 10 s must come, if late.
TEST(RunningTime, GoesOnHoweverSlowTheMachine) {
  RunningTime time;
  const auto counted = [&](int naps) { return seconds(60) * naps - time.stopped(); };
  for (int nap = 0; nap < 20; ++nap)
    time.slept(at(seconds(60) * nap), milliseconds(10), at(seconds(60) * (nap + 1)));
  EXPECT_EQ(counted(20), 20 * (milliseconds(10) + SLACK));
}

TEST(RunningTime, KnowsNothingOfASleepWithoutAnEnd) {
  RunningTime time;
  time.slept(at(seconds(0)), std::chrono::nanoseconds::max(), at(std::chrono::hours(1)));
  EXPECT_EQ(time.stopped().count(), 0);
}

TEST(Naps, ReportALookThatTookTooLong) {
  Naps naps;
  naps.sleep(milliseconds(1));
  const auto before = naps.now();
  const auto stopped = running_time.stopped();
  std::this_thread::sleep_for(SLACK + milliseconds(400));
  const auto after = naps.now();
  EXPECT_GE(running_time.stopped() - stopped, milliseconds(400));
  EXPECT_LT(after - before, SLACK + milliseconds(400));
}

TEST(Deadline, NapsAreShortOrAsLongAsIsLeft) {
  EXPECT_EQ(Deadline::in(std::chrono::hours(1)).nap(), LONGEST_NAP);
  EXPECT_LE(Deadline::in(milliseconds(20)).nap(), milliseconds(20));
  EXPECT_EQ(Deadline::in(seconds(0)).nap().count(), 0);
  EXPECT_EQ(Deadline::never().nap(), std::chrono::nanoseconds::max());
}

TEST(Deadline, WaitUntilEndsAtTheDeadlineOrWhenDone) {
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  EXPECT_FALSE(wait_until(condition, lock, Deadline::in(milliseconds(5)), [] { return false; }));
  EXPECT_TRUE(wait_until(condition, lock, Deadline::in(seconds(0)), [] { return true; }));
}

}  // namespace
}  // namespace lockstep
