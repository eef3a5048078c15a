#include "lockstep/os/signal_flags.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::array BOTH = {SIGUSR1, SIGTERM};

TEST(SignalFlags, TellWhichSignalCame) {
  const SignalFlags flags(BOTH);
  EXPECT_FALSE(SignalFlags::is_raised(SIGUSR1));
  std::raise(SIGUSR1);
  EXPECT_TRUE(SignalFlags::is_raised(SIGUSR1));
  EXPECT_FALSE(SignalFlags::is_raised(SIGTERM));
  SignalFlags::clear(SIGUSR1);
  EXPECT_FALSE(SignalFlags::is_raised(SIGUSR1));
}

TEST(SignalFlags, GiveBackWhatWasThereBefore) {
  const auto before = std::signal(SIGUSR1, SIG_IGN);
  for (int round = 0; round < 2; ++round) {
    const std::array twice = {SIGUSR1, SIGUSR1};
    const SignalFlags flags(twice);
    EXPECT_FALSE(SignalFlags::is_raised(SIGUSR1)) << "of the round before";
    std::raise(SIGUSR1);
    EXPECT_TRUE(SignalFlags::is_raised(SIGUSR1));
  }
  EXPECT_EQ(std::signal(SIGUSR1, before), SIG_IGN);
}

TEST(SignalFlags, DoNotInterruptSystemCalls) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const SignalFlags flags(BOTH);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    kill(parent, SIGTERM);  // the parent is in read() now or soon
    while (kill(parent, 0) == 0 && write(ends[1], "x", 1) != 1) {
    }
    _exit(0);
  }
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_TRUE(SignalFlags::is_raised(SIGTERM));
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(SignalFlags, RefuseWhatCannotBeCaught) {
  for (const int signal : {SIGKILL, SIGSTOP, 0, -1, 65}) {
    const std::array signals = {SIGUSR2, signal};
    EXPECT_THROW(SignalFlags{signals}, InvalidArgument) << signal;
  }
  const SignalFlags flags(BOTH);
  EXPECT_THROW(SignalFlags{BOTH}, InvalidArgument) << "one at a time";
}

}  // namespace
}  // namespace lockstep
