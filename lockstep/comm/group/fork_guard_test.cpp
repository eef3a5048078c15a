#include "lockstep/comm/group/fork_guard.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

TEST(ForkGuard, OnlyAForkIsRefused) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.is_fork());
  guard.refuse("a wait", {});
  const pid_t child = fork();
  if (child == 0) {
    bool refused = false;
    try {
      guard.refuse("a wait", {});
    } catch (const Aborted&) {
      refused = true;
    }
    _exit(guard.is_fork() && !ForkGuard().is_fork() && refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(guard.is_fork());
}

}  // namespace
}  // namespace lockstep
