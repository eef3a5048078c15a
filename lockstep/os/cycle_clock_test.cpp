#include "lockstep/os/cycle_clock.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(CycleClock, ConvertsByTheLineThroughTwoPairs) {
  const CycleClock::Pair first{1000, 50};
  const CycleClock::Pair second{3000, 1050};  // two counts a nanosecond
  EXPECT_EQ(CycleClock::nanoseconds(1000, first, second), 50);
  EXPECT_EQ(CycleClock::nanoseconds(2000, first, second), 550);
  EXPECT_EQ(CycleClock::nanoseconds(3000, first, second), 1050);
  EXPECT_EQ(CycleClock::nanoseconds(3200, first, second), 1150) << "counted after the second pair";
}

TEST(CycleClock, NeverGoesBack) {
  const CycleClock clock = CycleClock::of_this_machine();
  std::uint64_t last = clock.now();
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(CycleClock, AgreesWithTheSteadyClock) {
  for (const CycleClock clock : {CycleClock::of_this_machine(), CycleClock(false)}) {
    const CycleClock::Pair first = clock.pair();
    const std::int64_t before = CycleClock::steady_nanoseconds();
    const std::uint64_t count = clock.now();
    const std::int64_t after = CycleClock::steady_nanoseconds();
    while (CycleClock::steady_nanoseconds() < after + 5'000'000) {
    }
    const std::int64_t found = CycleClock::nanoseconds(count, first, clock.pair());
    constexpr std::int64_t MARGIN = 100'000;  // the rate is known from 5 ms only
    EXPECT_GE(found, before - MARGIN);
    EXPECT_LE(found, after + MARGIN);
  }
}

}  // namespace
}  // namespace lockstep
