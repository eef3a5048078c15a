#include "lockstep/os/process_table.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "lockstep/os/process.h"

namespace lockstep {
namespace {

bool is_running_or_asleep(char state) { return state == 'R' || state == 'S'; }

TEST(ProcessTable, TellsOfThisProcessAndOfNone) {
  const ProcessStat mine = process_stat(current_pid());
  EXPECT_TRUE(is_running_or_asleep(mine.state)) << mine.state;
  EXPECT_EQ(mine.parent, parent_pid());
  EXPECT_GT(mine.start_time, 0U);
  EXPECT_EQ(mine.start_time, process_stat(current_pid()).start_time);
  const ProcessStat none = process_stat(0);
  EXPECT_EQ(none.state, '?');
  EXPECT_EQ(none.parent, 0);
  EXPECT_EQ(none.start_time, 0U);
}

TEST(ProcessTable, HasThisProcessAndItsParent) {
  const std::vector<ProcessEntry> all = all_processes();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const ProcessEntry& entry) {
    return entry.pid == current_pid() && entry.parent == parent_pid();
  }));
}

// The name of a process may look like the fields behind it.
TEST(ProcessTable, IsNotFooledByNames) {
  std::array<char, 16> name = {};
  ASSERT_EQ(prctl(PR_GET_NAME, name.data()), 0);
  const ProcessStat before = process_stat(current_pid());
  ASSERT_EQ(prctl(PR_SET_NAME, "a) Z 1 2 (b) T"), 0);
  const ProcessStat named = process_stat(current_pid());
  ASSERT_EQ(prctl(PR_SET_NAME, name.data()), 0);
  EXPECT_TRUE(is_running_or_asleep(named.state)) << named.state;
  EXPECT_EQ(named.parent, before.parent);
  EXPECT_EQ(named.start_time, before.start_time);
}

TEST(ProcessTable, NumbersAreThoseOfTheFolder) {
  const std::vector<int> threads = numbers_in("/proc/self/task");
  EXPECT_TRUE(std::find(threads.begin(), threads.end(), current_pid()) != threads.end());
  EXPECT_TRUE(numbers_in("/no such folder").empty());
}

}  // namespace
}  // namespace lockstep
