#include "lockstep/base/wait_reminder.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What the log sink got. A nap of no time is an occasion like any other.
class WaitReminderTest : public testing::Test {
 protected:
  WaitReminderTest() {
    set_log_sink([this](LogLevel, const std::string& line) { lines_.push_back(line); });
  }
  ~WaitReminderTest() override { set_log_sink(nullptr); }

  std::vector<std::string> lines_;
};

TEST_F(WaitReminderTest, SaysWhereWhatAndHow) {
  const WaitReminder reminder(seconds(0), "init, rank 0 of 2", "started by hand");
  nap(milliseconds(0));
  EXPECT_THAT(lines_, IsEmpty()) << "nothing is waited for";
  std::string who = "rank 1";
  const Awaited awaited([&] { return who; });
  who = "rank 2";
  nap(milliseconds(0));
  EXPECT_THAT(lines_, ElementsAre("init, rank 0 of 2: waiting for 0 s for rank 2; started by hand"));
}

TEST_F(WaitReminderTest, KeepsQuietBeforeItsTime) {
  const WaitReminder reminder(std::chrono::hours(1), "init", "");
  const Awaited awaited([] { return "all"; });
  nap(milliseconds(1));
  EXPECT_THAT(lines_, IsEmpty());
}

// After 2, 4, 8, ... ms: of a wait of n ms one hears at most log2(n) times, and at least once.
TEST_F(WaitReminderTest, SpeaksEverMoreSeldom) {
  constexpr milliseconds AFTER{2};
  const WaitReminder reminder(AFTER, "init", "");
  const auto begun = std::chrono::steady_clock::now();
  const Awaited awaited([] { return "all"; });
  for (int naps = 0; naps < 50; ++naps) nap(milliseconds(1));
  const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun) / AFTER;
  EXPECT_GE(lines_.size(), 3U);
  EXPECT_LE(static_cast<double>(lines_.size()), 1 + std::log2(waited));
}

TEST_F(WaitReminderTest, ServesTheInnermostWaitAndEndsWithItsScope) {
  {
    const WaitReminder reminder(seconds(0), "outer", "");
    const Awaited one([] { return "one"; });
    {
      const Awaited two([] { return "two"; });
      nap(milliseconds(0));
    }
    nap(milliseconds(0));
  }
  const Awaited three([] { return "three"; });
  nap(milliseconds(0));
  EXPECT_THAT(lines_, ElementsAre("outer: waiting for 0 s for two", "outer: waiting for 0 s for one"));
}

}  // namespace
}  // namespace lockstep
