#include "lockstep/checkpoint/pace.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

void work_for(std::chrono::milliseconds time) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < time) {
  }
}

TEST(Pace, PausesThreeTimesAsLongAsTheWork) {
  Pace pace;
  const auto start = std::chrono::steady_clock::now();
  pace.begin();
  pace.resume();
  for (int i = 0; i < 5; ++i) {
    work_for(4ms);
    EXPECT_TRUE(pace.pause());
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, 5 * (4ms + 3 * 4ms));
}

TEST(Pace, DoesNotPauseWhenSomebodyWaits) {
  Pace pace;
  pace.begin();
  pace.resume();
  pace.hurry();
  work_for(4ms);
  EXPECT_FALSE(pace.pause());
  pace.begin();  // the next save
  pace.resume();
  work_for(4ms);
  EXPECT_TRUE(pace.pause());
}

// The pause would be six seconds; a thread starts sooner.
TEST(Pace, APauseEndsWhenSomebodyWaits) {
  Pace pace;
  pace.begin();
  pace.resume();
  std::this_thread::sleep_for(2s);
  std::thread waiter([&] { pace.hurry(); });
  EXPECT_FALSE(pace.pause());
  waiter.join();
}

}  // namespace
}  // namespace lockstep
