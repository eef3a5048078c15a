#include "lockstep/os/signal_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/os/child_process.h"

namespace lockstep {
namespace {

TEST(SignalQueue, ReportsWhatItWasAskedToAndDropsTheRest) {
  {
    SignalQueue queue({SIGUSR1}, {SIGUSR2, SIGPIPE});
    EXPECT_FALSE(queue.next().has_value());
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR2);
    kill(getpid(), SIGPIPE);
    const auto signal = queue.next();
    ASSERT_TRUE(signal.has_value());
    EXPECT_EQ(signal->number, SIGUSR1);
    EXPECT_EQ(signal->sender, getpid());
    EXPECT_FALSE(queue.next().has_value());
    kill(getpid(), SIGUSR1);
  }
  SUCCEED() << "none of them ended this process";
}

TEST(SignalQueue, NamesTheFirstOfSeveralChildrenThatDied) {
  SignalQueue queue({SIGCHLD}, {});
  const pid_t first = fork_child([] { return 1; });
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(first), &info, WEXITED | WNOWAIT);
  const pid_t second = fork_child([] { return 2; });
  waitid(P_PID, static_cast<id_t>(second), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(queue.next()->sender, first);
  EXPECT_EQ(wait_exit(first).code, 1);
  EXPECT_EQ(wait_exit(second).code, 2);
}

TEST(SignalQueue, RestoresTheMask) {
  sigset_t before;
  sigset_t after;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  { const SignalQueue queue({SIGUSR1}, {SIGPIPE}); }
  sigprocmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
  EXPECT_EQ(sigismember(&after, SIGPIPE), sigismember(&before, SIGPIPE));
}

TEST(SignalQueue, LeavesIgnoredSignalsIgnored) {
  std::signal(SIGUSR1, SIG_IGN);
  SignalQueue queue({SIGUSR1}, {});
  kill(getpid(), SIGUSR1);
  EXPECT_FALSE(queue.next().has_value());
  std::signal(SIGUSR1, SIG_DFL);
}

TEST(SignalQueue, SeesChildrenAlthoughTheParentIgnoredThem) {
  std::signal(SIGCHLD, SIG_IGN);
  const SignalQueue queue({SIGCHLD}, {});
  EXPECT_EQ(wait_exit(fork_child([] { return 3; })).code, 3);
}

}  // namespace
}  // namespace lockstep
