#include "lockstep/base/deadline.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace deadline_test {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Deadline, WhatTheClockCannotCountNeverEnds) {
  for (const Deadline& deadline : {Deadline::in(nanoseconds::max()), Deadline::in(milliseconds::max()),
                                   Deadline::in(seconds::max()), Deadline::in(hours(24 * 365 * 300))}) {
    EXPECT_TRUE(deadline.is_never());
    EXPECT_FALSE(deadline.expired());
    EXPECT_EQ(deadline.remaining(), nanoseconds::max());
  }
}

TEST(Deadline, CountsSpansOfAnyUnit) {
  EXPECT_LE(Deadline::in(hours(2)).remaining(), hours(2));
  EXPECT_GT(Deadline::in(hours(2)).remaining(), hours(1));
  EXPECT_FALSE(Deadline::in(hours(24 * 365 * 200)).is_never());
  EXPECT_TRUE(Deadline::in(seconds(0)).expired());
  EXPECT_TRUE(Deadline::in(seconds(-1)).expired());
}

TEST(BoundedTimeout, IsFiftyYearsAtMost) {
  EXPECT_EQ(bounded_timeout(seconds(30)), milliseconds(30000));
  EXPECT_EQ(bounded_timeout(hours(24 * 365 * 50)), LONGEST_TIMEOUT);
  EXPECT_EQ(bounded_timeout(milliseconds::max()), LONGEST_TIMEOUT);
  EXPECT_EQ(bounded_timeout(seconds::max()), LONGEST_TIMEOUT);
}

}  // namespace deadline_test
}  // namespace lockstep
