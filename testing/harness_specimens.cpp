// Tests that fail in every way a RANKS_TEST can fail. harness_test.cpp runs them one by one and reads what is
// reported; on their own they mean nothing.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "testing/ranks.h"

namespace lockstep {
namespace {

RANKS_TEST(Specimen, Passes, Ranks(1, 3), WithoutGroup()) {
  EXPECT_GE(rank(), 0);
  EXPECT_LT(rank(), size());
  EXPECT_EQ(backend_name(), "shm");
}

RANKS_TEST(Specimen, FailsOnRankOne, Ranks(3), WithoutGroup()) {
  std::printf("I am rank %d\n", rank());
  EXPECT_NE(rank(), 1) << "on purpose";
}

RANKS_TEST(Specimen, FailsOften, Ranks(1), WithoutGroup()) {
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(i, -1);
}

RANKS_TEST(Specimen, Throws, Ranks(2), WithoutGroup()) {
  if (rank() == 1) throw std::runtime_error("thrown on purpose");
}

RANKS_TEST(Specimen, Skips, Ranks(2), WithoutGroup()) {
  if (rank() == 1) GTEST_SKIP() << "no such device";
}

RANKS_TEST(Specimen, Dies, Ranks(2), WithoutGroup()) {
  std::printf("last words of rank %d\n", rank());
  if (rank() == 1) die();
}

RANKS_TEST(Specimen, DiesAsDeclared, Ranks(3), Dies({0, 2}), WithoutGroup()) {
  if (rank() != 1) die();
}

RANKS_TEST(Specimen, DeclaredButLives, Ranks(2), Dies({1}), WithoutGroup()) {}

RANKS_TEST(Specimen, DeclaredButDiesOfAnother, Ranks(2), Dies({1}), WithoutGroup()) {
  if (rank() == 1) raise(SIGTERM);
}

RANKS_TEST(Specimen, Exits, Ranks(2), WithoutGroup()) {
  if (rank() == 1) _exit(0);
}

RANKS_TEST(Specimen, ExitsBadlyAfterwards, Ranks(2), WithoutGroup()) {
  if (rank() == 1) std::atexit([] { _exit(7); });
}

RANKS_TEST(Specimen, Hangs, Ranks(2), Within(std::chrono::seconds(1)), WithoutGroup()) {
  std::printf("rank %d is here\n", rank());
  while (rank() == 1) pause();
}

RANKS_TEST(Specimen, Stops, Ranks(2), Within(std::chrono::seconds(1)), WithoutGroup()) {
  if (rank() == 1) raise(SIGSTOP);
}

// A rank that ends but leaves a child behind, whose pid it writes to a file.
RANKS_TEST(Specimen, LeavesAGrandchild, Ranks(1), WithoutGroup()) {
  EXPECT_EQ(std::system("sleep 1000 & echo $! > grandchild.pid"), 0);
}

RANKS_TEST(Specimen, LosesItsWatcher, Ranks(1), WithoutGroup()) {
  std::ofstream("orphan.pid") << getpid() << std::endl;
  const pid_t watcher = getppid();
  ASSERT_GT(watcher, 1);  // process 1 adopts whom the watcher left
  kill(watcher, SIGKILL);
  while (true) pause();
}

RANKS_TEST(Specimen, SeesTheLaunchersEnvironment, Ranks(1, 4), Variable("LOCKSTEP_WARN_AFTER", "1"),
           WithoutGroup()) {
  EXPECT_EQ(std::getenv("RANK"), std::to_string(rank()));
  EXPECT_EQ(std::getenv("LOCAL_RANK"), std::to_string(rank()));
  EXPECT_EQ(std::getenv("WORLD_SIZE"), std::to_string(size()));
  EXPECT_EQ(std::getenv("LOCAL_WORLD_SIZE"), std::to_string(size()));
  EXPECT_EQ(std::string(std::getenv("LOCKSTEP_JOB_ID")).size(), 16U);
  EXPECT_STREQ(std::getenv("LOCKSTEP_WARN_AFTER"), "1");
  EXPECT_STREQ(std::getenv("LOCKSTEP_TERMINAL"), nullptr);
  const char* fds = std::getenv("LOCKSTEP_HUB_FDS");
  EXPECT_EQ(fds == nullptr, size() == 1);
  const std::string list(fds == nullptr ? "" : fds);
  if (size() == 1) return;
  EXPECT_EQ(std::count(list.begin(), list.end(), ','), rank() == 0 ? 2 : 0) << list;
}

// For run_case, which runs each in a copy of a fork server.
struct Farewell {
  ~Farewell() { std::printf("static objects are destroyed\n"); }
};

TEST(Case, Passes) {
  static Farewell farewell;
  std::printf("server %d\n", getppid());
}

TEST(Case, Fails) { EXPECT_EQ(1, 2); }

TEST(Case, IsKilled) { raise(SIGKILL); }

TEST(Case, SeesItsPlace) {
  std::array<char, 4096> folder;
  ASSERT_NE(getcwd(folder.data(), folder.size()), nullptr);
  const char* const variable = std::getenv("CASE_VARIABLE");
  std::printf("in %s with %s\n", folder.data(), variable == nullptr ? "nothing" : variable);
}

TEST(Case, Waits) {
  std::printf("case %d\n", getpid());
  std::fflush(stdout);
  while (true) pause();
}

}  // namespace
}  // namespace lockstep
